package probe

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"slices"
	"strconv"
	"strings"
)

// Listening returns those of the wanted TCP ports on which a socket of this network
// namespace is listening, sorted. wanted is sorted.
func Listening(wanted []uint32) ([]uint32, error) {
	if len(wanted) == 0 {
		return nil, nil
	}
	var out []uint32
	for _, path := range []string{"/proc/self/net/tcp", "/proc/self/net/tcp6"} {
		f, err := os.Open(path)
		if errors.Is(err, fs.ErrNotExist) {
			continue // no IPv6
		}
		if err != nil {
			return nil, fmt.Errorf("read listening sockets: %w", err)
		}
		ports, err := scanPorts(f, wanted)
		if err = errors.Join(err, f.Close()); err != nil {
			return nil, fmt.Errorf("read listening sockets: %w", err)
		}
		out = append(out, ports...)
	}
	slices.Sort(out)
	return slices.Compact(out), nil
}

// scanPorts reads the format of /proc/net/tcp: "sl local_address rem_address st …",
// an address being hexadecimal and ending in ":port". Lines that it cannot read are
// passed over.
func scanPorts(r io.Reader, wanted []uint32) ([]uint32, error) {
	const listen = "0A"
	var out []uint32
	sc := bufio.NewScanner(r)
	for sc.Scan() {
		f := strings.Fields(sc.Text())
		if len(f) < 4 || f[3] != listen {
			continue
		}
		_, hex, ok := strings.Cut(f[1], ":")
		port, err := strconv.ParseUint(hex, 16, 16)
		if !ok || err != nil {
			continue
		}
		if _, ok := slices.BinarySearch(wanted, uint32(port)); ok {
			out = append(out, uint32(port))
		}
	}
	return out, sc.Err() //nolint:wrapcheck // the caller says what it read
}
