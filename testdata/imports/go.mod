module aether.io/aether

go 1.26.0
