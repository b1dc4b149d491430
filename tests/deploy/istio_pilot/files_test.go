// Package pilot judges the files of deploy/istio by Istio's own validation, and applies them by its pilot library.
package pilot

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	cluster "github.com/envoyproxy/go-control-plane/envoy/config/cluster/v3"
	listener "github.com/envoyproxy/go-control-plane/envoy/config/listener/v3"
	route "github.com/envoyproxy/go-control-plane/envoy/config/route/v3"
	ratelimit "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/http/ratelimit/v3"
	hcm "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/network/http_connection_manager/v3"
	tls "github.com/envoyproxy/go-control-plane/envoy/extensions/transport_sockets/tls/v3"
	http "github.com/envoyproxy/go-control-plane/envoy/extensions/upstreams/http/v3"

	"istio.io/istio/pilot/pkg/config/kube/crd"
	"istio.io/istio/pilot/pkg/model"
	pilot "istio.io/istio/pilot/pkg/networking/core"
	"istio.io/istio/pkg/config/schema/collections"
)

const (
	directory = "../../../deploy/istio"
	// Cluster of tollgate in Istio's proxies.
	tollgate = "outbound|8081||tollgate.tollgate.svc.cluster.local"
	// Usual warning about every EnvoyFilter.
	usual = "EnvoyFilter exposes internal implementation details"
)

// Services of the mesh, a gateway, and a route named login.
const mesh = `
apiVersion: networking.istio.io/v1
kind: ServiceEntry
metadata: {name: tollgate, namespace: tollgate}
spec:
  hosts: [tollgate.tollgate.svc.cluster.local]
  addresses: [10.0.0.1]
  ports: [{number: 8081, name: grpc, protocol: GRPC}]
  resolution: STATIC
  endpoints: [{address: 10.1.0.1}]
---
apiVersion: networking.istio.io/v1
kind: ServiceEntry
metadata: {name: shop, namespace: shop}
spec:
  hosts: [shop.shop.svc.cluster.local]
  addresses: [10.0.0.2]
  ports: [{number: 80, name: http, protocol: HTTP, targetPort: 8080}]
  resolution: STATIC
  endpoints: [{address: 10.1.0.2, labels: {app: shop}}]
---
apiVersion: networking.istio.io/v1
kind: Gateway
metadata: {name: shop, namespace: istio-ingress}
spec:
  selector: {istio: ingressgateway}
  servers: [{port: {number: 80, name: http, protocol: HTTP}, hosts: ["*"]}]
---
apiVersion: networking.istio.io/v1
kind: VirtualService
metadata: {name: shop, namespace: istio-ingress}
spec:
  hosts: ["*"]
  gateways: [shop]
  http:
  - {name: login, match: [{uri: {exact: /login}}], route: [{destination: {host: shop.shop.svc.cluster.local}}]}
  - {name: default, route: [{destination: {host: shop.shop.svc.cluster.local}}]}
---
`

func read(t *testing.T, name string) string {
	text, err := os.ReadFile(filepath.Join(directory, name+".yaml"))
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

func names(t *testing.T) []string {
	files, err := filepath.Glob(directory + "/*.yaml")
	if err != nil || len(files) < 5 {
		t.Fatalf("%v: %v", files, err)
	}
	for at, file := range files {
		files[at] = strings.TrimSuffix(filepath.Base(file), ".yaml")
	}
	return files
}

func TestIstioAcceptsEveryFile(t *testing.T) {
	for _, name := range names(t) {
		configs, others, err := crd.ParseInputs(read(t, name))
		if err != nil || len(others) > 0 || len(configs) == 0 {
			t.Errorf("%s: %v, %d objects of other kinds", name, err, len(others))
		}
		for _, config := range configs {
			schema, _ := collections.PilotGatewayAPI().FindByGroupVersionKind(config.GroupVersionKind)
			warning, err := schema.ValidateConfig(config)
			if err != nil || (warning != nil && !strings.HasPrefix(strings.TrimSpace(warning.Error()), usual)) {
				t.Errorf("%s, %s: %v; warning: %v", name, config.Name, err, warning)
			}
		}
	}
}

// Mistakes in values and in Istio's own keys. Unknown fields of Envoy are accepted; tests/deploy/istio.rs has Envoy refuse them.
func TestIstioRefusesMistakes(t *testing.T) {
	for _, mistake := range [][3]string{
		{"gateway", "vh_rate_limits: INCLUDE", "vh_rate_limits: INCLUDED"},
		{"sidecar", "INSERT_BEFORE", "INSERT_AROUND"},
		{"cluster", "operation: MERGE", "operation: MERGES"},
	} {
		text := read(t, mistake[0])
		broken := strings.Replace(text, mistake[1], mistake[2], 1)
		if broken == text {
			t.Fatalf("%s has no %s", mistake[0], mistake[1])
		}
		if _, _, err := crd.ParseInputs(broken); err == nil {
			t.Errorf("%s: %s is accepted", mistake[0], mistake[2])
		}
	}
}

// Listeners, routes and clusters that Istio makes for a proxy with these files.
type made struct {
	listeners []*listener.Listener
	routes    []*route.RouteConfiguration
	clusters  []*cluster.Cluster
}

func apply(t *testing.T, proxy *model.Proxy, files ...string) made {
	all := mesh
	for _, name := range files {
		all += read(t, name) + "\n---\n"
	}
	test := pilot.NewConfigGenTest(t, pilot.TestOptions{ConfigString: all})
	proxy = test.SetupProxy(proxy)
	listeners := test.Listeners(proxy)
	return made{listeners, test.RoutesFromListeners(proxy, listeners), test.Clusters(proxy)}
}

func gateway() *model.Proxy {
	labels := map[string]string{"istio": "ingressgateway"}
	return &model.Proxy{
		Type: model.Router, ConfigNamespace: "istio-ingress", Labels: labels, IPAddresses: []string{"10.1.0.3"},
		Metadata: &model.NodeMetadata{IstioVersion: "1.31.0", Namespace: "istio-ingress", Labels: labels},
	}
}

func sidecar() *model.Proxy {
	labels := map[string]string{"app": "shop"}
	return &model.Proxy{
		Type: model.SidecarProxy, ConfigNamespace: "shop", Labels: labels, IPAddresses: []string{"10.1.0.2"},
		Metadata: &model.NodeMetadata{IstioVersion: "1.31.0", Namespace: "shop", Labels: labels},
	}
}

// Connection managers of a listener.
func managers(t *testing.T, made made, name string) []*hcm.HttpConnectionManager {
	var found []*hcm.HttpConnectionManager
	for _, each := range made.listeners {
		if each.Name != name {
			continue
		}
		valid(t, each)
		for _, chain := range each.FilterChains {
			for _, filter := range chain.Filters {
				manager := &hcm.HttpConnectionManager{}
				if filter.GetTypedConfig().UnmarshalTo(manager) == nil {
					found = append(found, manager)
				}
			}
		}
	}
	if len(found) == 0 {
		t.Fatalf("no connection manager in %s", name)
	}
	return found
}

func valid(t *testing.T, message interface{ ValidateAll() error }) {
	if err := message.ValidateAll(); err != nil {
		t.Error(err)
	}
}

// The filter before the router.
func last(t *testing.T, manager *hcm.HttpConnectionManager, name, domain string) *ratelimit.RateLimit {
	filters := manager.HttpFilters
	if len(filters) < 2 || filters[len(filters)-2].Name != name {
		t.Fatalf("%s is not before the router: %v", name, filters)
	}
	filter := &ratelimit.RateLimit{}
	if err := filters[len(filters)-2].GetTypedConfig().UnmarshalTo(filter); err != nil {
		t.Fatal(err)
	}
	valid(t, filter)
	service := filter.RateLimitService.GrpcService.GetEnvoyGrpc()
	if filter.Domain != domain || service.ClusterName != tollgate {
		t.Errorf("domain %s, cluster %s", filter.Domain, service.ClusterName)
	}
	return filter
}

func clusterOf(t *testing.T, made made) *cluster.Cluster {
	for _, each := range made.clusters {
		if each.Name == tollgate {
			valid(t, each)
			return each
		}
	}
	t.Fatalf("no cluster %s", tollgate)
	return nil
}

func tlsOf(t *testing.T, made made) *tls.UpstreamTlsContext {
	socket := clusterOf(t, made).TransportSocket
	if socket == nil {
		t.Fatal("no TLS")
	}
	context := &tls.UpstreamTlsContext{}
	if err := socket.GetTypedConfig().UnmarshalTo(context); err != nil {
		t.Fatal(err)
	}
	return context
}

func TestAGatewayHasTheFilterAndTheLimits(t *testing.T) {
	made := apply(t, gateway(), "gateway", "cluster")
	for _, manager := range managers(t, made, "0.0.0.0_80") {
		last(t, manager, "envoy.filters.http.ratelimit", "gateway")
	}
	hosts, routes := 0, map[string]*route.Route{}
	for _, each := range made.routes {
		valid(t, each)
		for _, host := range each.VirtualHosts {
			if len(host.RateLimits) == 1 && host.RateLimits[0].Actions[0].GetRemoteAddress() != nil {
				hosts++
			}
			for _, each := range host.Routes {
				routes[each.Name] = each
			}
		}
	}
	if hosts == 0 {
		t.Errorf("no host has the limit: %v", made.routes)
	}
	login, other := routes["login"], routes["default"]
	if login == nil || other == nil || len(login.GetRoute().RateLimits) != 1 || len(other.GetRoute().RateLimits) != 0 {
		t.Fatalf("limits of routes: %v", routes)
	}
	perRoute := &ratelimit.RateLimitPerRoute{}
	if err := login.TypedPerFilterConfig["envoy.filters.http.ratelimit"].UnmarshalTo(perRoute); err != nil {
		t.Fatal(err)
	}
	if perRoute.VhRateLimits != ratelimit.RateLimitPerRoute_INCLUDE {
		t.Errorf("login has not the limits of its host: %v", perRoute)
	}
}

func TestTheClusterOfAGatewayIsCheckedAndBalanced(t *testing.T) {
	found := clusterOf(t, apply(t, gateway(), "gateway", "cluster"))
	authority := "tollgate.tollgate.svc.cluster.local"
	checks := found.HealthChecks
	if len(checks) != 1 || checks[0].GetGrpcHealthCheck().GetAuthority() != authority {
		t.Errorf("health checks: %v", checks)
	}
	if found.LbPolicy != cluster.Cluster_LEAST_REQUEST || found.OutlierDetection.GetConsecutive_5Xx().GetValue() != 5 {
		t.Errorf("%v, %v", found.LbPolicy, found.OutlierDetection)
	}
	options := &http.HttpProtocolOptions{}
	const name = "envoy.extensions.upstreams.http.v3.HttpProtocolOptions"
	if err := found.TypedExtensionProtocolOptions[name].UnmarshalTo(options); err != nil {
		t.Fatal(err)
	}
	if options.GetExplicitHttpConfig().GetHttp2ProtocolOptions() == nil {
		t.Errorf("not HTTP/2: %v", options)
	}
	if checks := clusterOf(t, apply(t, sidecar(), "sidecar", "cluster")).HealthChecks; len(checks) != 0 {
		t.Errorf("a sidecar checks the health: %v", checks)
	}
}

func TestAGatewayPresentsItsCertificate(t *testing.T) {
	context := tlsOf(t, apply(t, gateway(), "gateway", "cluster_tls"))
	name := "tollgate.tollgate.svc.cluster.local"
	common := context.CommonTlsContext
	certificates := common.TlsCertificateSdsSecretConfigs
	if context.Sni != name || len(certificates) != 1 || certificates[0].Name != "kubernetes://tollgate-client" {
		t.Errorf("%s, %v", context.Sni, certificates)
	}
	if !strings.Contains(common.String(), name) {
		t.Errorf("the name is not verified: %v", common)
	}
}

func TestASidecarLimitsWhatReachesItsWorkload(t *testing.T) {
	made := apply(t, sidecar(), "sidecar")
	limited := 0
	for _, manager := range managers(t, made, model.VirtualInboundListenerName) {
		last(t, manager, "envoy.filters.http.ratelimit", "shop")
		for _, host := range manager.GetRouteConfig().GetVirtualHosts() {
			if host.Name == "inbound|http|80" && len(host.RateLimits) == 1 {
				limited++
			}
		}
	}
	if limited == 0 {
		t.Error("inbound|http|80 has no limit")
	}
}

func TestASidecarHoldsPermits(t *testing.T) {
	for _, manager := range managers(t, apply(t, sidecar(), "concurrency"), model.VirtualInboundListenerName) {
		filter := last(t, manager, "tollgate.concurrency", "shop-concurrency")
		if len(filter.RateLimits) != 2 || !filter.RateLimits[1].ApplyOnStreamDone || !filter.FailureModeDeny {
			t.Errorf("%v", filter)
		}
	}
}
