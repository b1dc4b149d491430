//! The overlay of two regions: each has the same table, and the certificate name and the port that the table states.

use tollgate::config::read_regions;

use super::*;

const OVERLAYS: [(&str, &str); 2] = [
    ("us-east", "deploy/kubernetes/overlays/two-regions/us-east"),
    ("eu-west", "deploy/kubernetes/overlays/two-regions/eu-west"),
];

#[test]
fn both_regions_have_the_same_table_and_what_it_states_of_them() {
    let tables = OVERLAYS.map(|(name, overlay)| {
        let documents = built(overlay);
        let map = find(documents, "ConfigMap", "tollgate-regions").expect("a table");
        assert_eq!(map["metadata"]["name"], "tollgate-regions", "a hash would restart all pods");
        let text = map["data"]["regions.yaml"].as_str().expect("a text");
        let table = read_regions("regions.yaml", text.as_bytes()).expect("valid");
        let region = table.region(name).expect("in the table");
        let service = find(documents, "Service", "tollgate-region").expect("a service");
        let port = service.pointer("/spec/ports/0/port").and_then(Value::as_u64).expect("a port");
        assert!(region.address.ends_with(&format!(":{port}")), "{}", region.address);
        let certificate = find(documents, "Certificate", "tollgate-region").expect("a certificate");
        assert_eq!(certificate["spec"]["dnsNames"], serde_json::json!([&*region.certificate_name]));
        let settings = settings(&environment(documents, "rediss://localhost:6379"));
        let region = settings.region.expect("a region");
        assert_eq!(region.name, name);
        assert_eq!(u64::from(region.peers.expect("a service").address.port()), port);
        text.to_owned()
    });
    assert_eq!(tables[0], tables[1]);
}
