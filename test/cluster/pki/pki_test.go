package pki

import (
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"net"
	"os"
	"path/filepath"
	"testing"
)

func open(t *testing.T, dir string) *Authority {
	t.Helper()
	a, err := Open(dir)
	if err != nil {
		t.Fatal(err)
	}
	return a
}

func issue(t *testing.T, a *Authority, name string, s Subject) []byte {
	t.Helper()
	pair, err := a.Issue(name, s)
	if err != nil {
		t.Fatal(err)
	}
	loaded, err := tls.LoadX509KeyPair(pair.CertFile, pair.KeyFile)
	if err != nil {
		t.Fatal(err)
	}
	pool := x509.NewCertPool()
	pool.AppendCertsFromPEM(a.PEM())
	_, err = loaded.Leaf.Verify(x509.VerifyOptions{Roots: pool, KeyUsages: []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth}})
	if err != nil {
		t.Fatal(err)
	}
	return loaded.Leaf.Raw
}

func TestWhatIsStillGoodIsUsedAgain(t *testing.T) {
	dir := t.TempDir()
	node := Subject{CommonName: "system:node:a", Organizations: []string{"system:nodes"}, Hosts: []string{"a", "192.0.2.1"}}
	first := issue(t, open(t, dir), "node", node)
	if again := issue(t, open(t, dir), "node", node); string(again) != string(first) {
		t.Error("the certificate is another one though nothing changed")
	}
	moved := node
	moved.Hosts = []string{"a", "192.0.2.2"}
	second := issue(t, open(t, dir), "node", moved)
	leaf, err := x509.ParseCertificate(second)
	if err != nil {
		t.Fatal(err)
	}
	if len(leaf.IPAddresses) != 1 || !leaf.IPAddresses[0].Equal(net.IPv4(192, 0, 2, 2)) {
		t.Errorf("the certificate is for %v", leaf.IPAddresses)
	}
	if err := os.Remove(filepath.Join(dir, "ca.crt")); err != nil {
		t.Fatal(err)
	}
	if third := issue(t, open(t, dir), "node", moved); string(third) == string(second) {
		t.Error("the certificate of another authority was used again")
	}
}

func TestAKubeconfigHasAllItNeedsWithin(t *testing.T) {
	dir := t.TempDir()
	a := open(t, filepath.Join(dir, "pki"))
	path := filepath.Join(dir, "kubeconfig")
	if err := a.Kubeconfig(path, "admin", "https://127.0.0.1:6443", Subject{CommonName: "admin", Organizations: []string{"system:masters"}}); err != nil {
		t.Fatal(err)
	}
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	var got struct {
		Clusters []struct {
			Cluster struct {
				Server string `json:"server"`
				CA     []byte `json:"certificate-authority-data"`
			} `json:"cluster"`
		} `json:"clusters"`
		Users []struct {
			User struct {
				Cert []byte `json:"client-certificate-data"`
				Key  []byte `json:"client-key-data"`
			} `json:"user"`
		} `json:"users"`
	}
	if err := json.Unmarshal(text, &got); err != nil {
		t.Fatal(err)
	}
	if got.Clusters[0].Cluster.Server != "https://127.0.0.1:6443" || string(got.Clusters[0].Cluster.CA) != string(a.PEM()) {
		t.Errorf("the cluster is %+v", got.Clusters)
	}
	if _, err := tls.X509KeyPair(got.Users[0].User.Cert, got.Users[0].User.Key); err != nil {
		t.Error(err)
	}
}
