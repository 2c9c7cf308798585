// Package controlplane knows how etcd and Kubernetes' API server, controller manager and
// scheduler are started, each once and on one machine. It makes their certificates and
// says their command lines; it starts nothing.
package controlplane

import (
	"fmt"
	"net/netip"
	"os"
	"path/filepath"
	"strconv"

	"aether.io/aether/test/cluster/pki"
	"aether.io/aether/test/cluster/supervise"
)

// Config is what a control plane is made from.
type Config struct {
	Program   string // the file with all programs of Kubernetes
	Dir       string // for etcd's data and the audit log
	Authority *pki.Authority

	Address  netip.Addr // where the API server listens, for everybody
	Port     uint16     // of the API server
	EtcdPort uint16     // of etcd, on loopback
	// SharePorts lets the programs listen at ports that another process has bound for
	// them without listening (SO_REUSEPORT): so no one else can take them.
	SharePorts bool
	Services   netip.Prefix // of the addresses of Services; the first is the API server's
	// Nodes says that there are some: the API server calls their kubelets, and its address
	// is that of the Service `kubernetes`.
	Nodes bool
}

// ControlPlane is the command lines and what a person needs.
type ControlPlane struct {
	Etcd, APIServer, ControllerManager, Scheduler supervise.Command
	Server                                        string // the API server's URL
	Admin                                         string // the file of the administrator's kubeconfig
}

// New writes the files that the programs read.
func New(c Config) (*ControlPlane, error) {
	for _, dir := range []string{c.path("etcd"), c.path("conf")} {
		if err := os.MkdirAll(dir, 0o700); err != nil {
			return nil, err
		}
	}
	cp := &ControlPlane{Server: "https://" + netip.AddrPortFrom(c.Address, c.Port).String(), Admin: c.path("conf/admin.kubeconfig")}
	admin := pki.Subject{CommonName: "admin", Organizations: []string{"system:masters"}}
	if err := c.Authority.Kubeconfig(cp.Admin, "admin", cp.Server, admin); err != nil {
		return nil, err
	}
	for _, make := range []func(*ControlPlane) error{c.etcd, c.apiServer, c.controllerManager, c.scheduler} {
		if err := make(cp); err != nil {
			return nil, fmt.Errorf("prepare the control plane: %w", err)
		}
	}
	return cp, nil
}

func (c Config) path(name string) string { return filepath.Join(c.Dir, name) }

func (c Config) etcdURL() string { return "https://127.0.0.1:" + port(c.EtcdPort) }

func port(p uint16) string { return strconv.Itoa(int(p)) }

func (c Config) etcd(cp *ControlPlane) error {
	pair, err := c.Authority.Issue("etcd", pki.Subject{CommonName: "etcd", Hosts: []string{"127.0.0.1"}})
	if err != nil {
		return err
	}
	cp.Etcd = supervise.Command{Name: "etcd", Args: []string{
		c.Program, "etcd",
		"--name=etcd",
		"--data-dir=" + c.path("etcd"),
		"--listen-client-urls=" + c.etcdURL(),
		"--advertise-client-urls=" + c.etcdURL(),
		"--listen-peer-urls=http://127.0.0.1:0", // it has no peers
		"--cert-file=" + pair.CertFile,
		"--key-file=" + pair.KeyFile,
		"--client-cert-auth",
		"--trusted-ca-file=" + c.Authority.Pair().CertFile,
		"--socket-reuse-port=" + strconv.FormatBool(c.SharePorts),
		// Data need to outlive a process, not the machine.
		"--unsafe-no-fsync",
		"--log-level=warn",
	}}
	return nil
}

// apiServer keeps Kubernetes' defaults but for what a cluster must say.
func (c Config) apiServer(cp *ControlPlane) error {
	serving, err := c.Authority.Issue("kube-apiserver", pki.Subject{CommonName: "kube-apiserver", Hosts: []string{
		"localhost", "127.0.0.1", c.Address.String(), c.Services.Masked().Addr().Next().String(),
		"kubernetes", "kubernetes.default", "kubernetes.default.svc", "kubernetes.default.svc.cluster.local",
	}})
	if err != nil {
		return err
	}
	etcdClient, err := c.Authority.Issue("etcd-client", pki.Subject{CommonName: "kube-apiserver"})
	if err != nil {
		return err
	}
	accounts, err := c.Authority.Key("service-accounts")
	if err != nil {
		return err
	}
	policy := c.path("conf/audit.yaml")
	if err := os.WriteFile(policy, []byte(auditPolicy), 0o644); err != nil {
		return err
	}
	ca := c.Authority.Pair().CertFile
	args := []string{
		c.Program, "kube-apiserver",
		"--bind-address=" + c.Address.String(),
		"--advertise-address=" + c.Address.String(),
		"--secure-port=" + port(c.Port),
		"--permit-port-sharing=" + strconv.FormatBool(c.SharePorts),
		"--cert-dir=" + c.path("conf"),
		"--tls-cert-file=" + serving.CertFile,
		"--tls-private-key-file=" + serving.KeyFile,
		"--client-ca-file=" + ca,
		"--etcd-servers=" + c.etcdURL(),
		"--etcd-cafile=" + ca,
		"--etcd-certfile=" + etcdClient.CertFile,
		"--etcd-keyfile=" + etcdClient.KeyFile,
		"--service-cluster-ip-range=" + c.Services.String(),
		"--service-account-issuer=https://kubernetes.default.svc.cluster.local",
		"--service-account-key-file=" + accounts,
		"--service-account-signing-key-file=" + accounts,
		"--authorization-mode=Node,RBAC",
		"--enable-admission-plugins=NodeRestriction", // besides the default ones, PodSecurity among them
		"--allow-privileged",
		"--audit-policy-file=" + policy,
		"--audit-log-path=" + c.path("audit.log"),
		"--audit-log-maxsize=200", // MiB
		"--audit-log-maxbackup=1",
		"--profiling=false",
		"--shutdown-delay-duration=0s",
	}
	if c.Nodes {
		client, err := c.Authority.Issue("kubelet-client", pki.Subject{CommonName: "kube-apiserver-kubelet-client", Organizations: []string{"system:masters"}})
		if err != nil {
			return err
		}
		args = append(args,
			"--kubelet-certificate-authority="+ca,
			"--kubelet-client-certificate="+client.CertFile,
			"--kubelet-client-key="+client.KeyFile,
			"--kubelet-preferred-address-types=InternalIP",
		)
	} else {
		args = append(args, "--endpoint-reconciler-type=none") // a Service can't be at a loopback address
	}
	cp.APIServer = supervise.Command{Name: "kube-apiserver", Args: args}
	return nil
}

// auditPolicy notes who wrote what, without the objects: writes are counted from it.
const auditPolicy = `apiVersion: audit.k8s.io/v1
kind: Policy
omitStages: [RequestReceived]
rules:
  - level: None
    verbs: [get, list, watch]
  - level: None
    resources: [{group: coordination.k8s.io, resources: [leases]}, {group: "", resources: [events]}, {group: events.k8s.io, resources: [events]}]
  - level: Metadata
`

func (c Config) controllerManager(cp *ControlPlane) error {
	config := c.path("conf/controller-manager.kubeconfig")
	if err := c.Authority.Kubeconfig(config, "controller-manager", cp.Server, pki.Subject{CommonName: "system:kube-controller-manager"}); err != nil {
		return err
	}
	accounts, err := c.Authority.Key("service-accounts")
	if err != nil {
		return err
	}
	ca := c.Authority.Pair()
	cp.ControllerManager = supervise.Command{Name: "kube-controller-manager", Args: []string{
		c.Program, "kube-controller-manager",
		"--kubeconfig=" + config,
		"--authentication-kubeconfig=" + config,
		"--authorization-kubeconfig=" + config,
		"--bind-address=127.0.0.1",
		"--use-service-account-credentials",
		"--service-account-private-key-file=" + accounts,
		"--root-ca-file=" + ca.CertFile,
		"--cluster-signing-cert-file=" + ca.CertFile,
		"--cluster-signing-key-file=" + ca.KeyFile,
		"--allocate-node-cidrs=false", // each node is given its range
		"--leader-elect=false",        // there is one
	}}
	return nil
}

func (c Config) scheduler(cp *ControlPlane) error {
	config := c.path("conf/scheduler.kubeconfig")
	if err := c.Authority.Kubeconfig(config, "scheduler", cp.Server, pki.Subject{CommonName: "system:kube-scheduler"}); err != nil {
		return err
	}
	cp.Scheduler = supervise.Command{Name: "kube-scheduler", Args: []string{
		c.Program, "kube-scheduler",
		"--kubeconfig=" + config,
		"--authentication-kubeconfig=" + config,
		"--authorization-kubeconfig=" + config,
		"--bind-address=127.0.0.1",
		"--leader-elect=false",
	}}
	return nil
}
