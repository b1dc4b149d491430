//! Variables of a container in a manifest of Kubernetes, or of a service in a file of compose.

use serde_json::{Map, Value};

use super::{env_file::is_name, source::Found, yaml::documents};

/// Variables that only envoyproxy/ratelimit has: a container with one of them is it, whatever its image is called.
const TELLTALE: [&str; 4] = ["REDIS_SOCKET_TYPE", "RUNTIME_SUBDIRECTORY", "RUNTIME_ROOT", "CONFIG_TYPE"];

/// Levels of a manifest that are gone through.
const MAX_DEPTH: usize = 32;

/// Reads the variables of the container that is the rate-limit service.
pub(super) fn read(text: &str) -> Found {
    let mut containers = Vec::new();
    let mut found = Found::default();
    let documents = documents(text);
    for document in &documents {
        match document {
            Ok(document) => collect(document, 0, &mut containers),
            Err(error) => found.not_seen.push(error.clone()),
        }
    }
    let ours = containers.iter().find(|container| is_it(container)).or(match &*containers {
        [only] => Some(only),
        _ => None,
    });
    if let Some(container) = ours {
        variables(container, &mut found);
    }
    found
}

/// Everything that has variables of its own.
fn collect<'a>(value: &'a Value, depth: usize, into: &mut Vec<&'a Map<String, Value>>) {
    if depth >= MAX_DEPTH {
        return;
    }
    let below = depth.saturating_add(1);
    match value {
        Value::Object(fields) => {
            if ["env", "envFrom", "environment", "env_file"].iter().any(|name| fields.contains_key(*name)) {
                into.push(fields);
            }
            fields.values().for_each(|value| collect(value, below, into));
        }
        Value::Array(items) => items.iter().for_each(|item| collect(item, below, into)),
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => {}
    }
}

fn is_it(container: &Map<String, Value>) -> bool {
    let is_named =
        |field| container.get(field).and_then(Value::as_str).is_some_and(|it| it.contains("ratelimit"));
    let mut found = Found::default();
    variables(container, &mut found);
    is_named("image") || is_named("name") || TELLTALE.iter().any(|name| found.variables.contains_key(*name))
}

fn variables(container: &Map<String, Value>, found: &mut Found) {
    for item in container.get("env").and_then(Value::as_array).into_iter().flatten() {
        let Some(name) = item.get("name").and_then(Value::as_str) else { continue };
        match (item.get("value"), item.get("valueFrom")) {
            (Some(value), _) => insert(found, name, value),
            (None, Some(from)) => found.not_seen.push(format!("{name}: its value is in {}", origin(from))),
            (None, None) => insert(found, name, &Value::Null),
        }
    }
    for from in container.get("envFrom").and_then(Value::as_array).into_iter().flatten() {
        found.not_seen.push(format!("all variables of {}", origin(from)));
    }
    match container.get("environment") {
        Some(Value::Object(pairs)) => pairs.iter().for_each(|(name, value)| insert(found, name, value)),
        Some(Value::Array(lines)) => {
            for line in lines.iter().filter_map(Value::as_str) {
                match line.split_once('=') {
                    Some((name, value)) => insert(found, name, &Value::String(value.to_owned())),
                    None if is_name(line) => found.not_seen.push(format!("{line}: it has no value here")),
                    // It may be part of a secret.
                    None => found.not_seen.push("an item of `environment` that is no NAME=VALUE".to_owned()),
                }
            }
        }
        _ => {}
    }
    if container.contains_key("env_file") {
        found.not_seen.push("all variables of `env_file`".to_owned());
    }
}

/// Notes a variable. What refers to other variables has its value elsewhere.
fn insert(found: &mut Found, name: &str, value: &Value) {
    let value = match value {
        Value::String(text) => text.clone(),
        Value::Null => String::new(),
        other => other.to_string(),
    };
    match value.contains("${") || value.contains("$(") {
        true => found.not_seen.push(format!("{name}: its value refers to other variables")),
        false => {
            found.variables.insert(name.to_owned(), value);
        }
    }
}

/// Where a value is from, such as `secretKeyRef redis, key password`.
fn origin(from: &Value) -> String {
    let kinds = from.as_object().into_iter().flatten().filter(|(_, value)| value.is_object());
    let told = kinds.map(|(kind, value)| {
        let field = |name| value.get(name).and_then(Value::as_str);
        let name = field("name").or(field("fieldPath")).unwrap_or("?");
        field("key").map_or_else(|| format!("{kind} {name}"), |key| format!("{kind} {name}, key {key}"))
    });
    told.collect::<Vec<_>>().join(" and ")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pairs(found: &Found) -> Vec<(&str, &str)> {
        found.variables.iter().map(|(name, value)| (&**name, &**value)).collect()
    }

    #[test]
    fn of_several_containers_the_one_that_limits_rates_is_read() {
        let found = read(
            "kind: ConfigMap\ndata: {PORT: '1'}\n---\nkind: Deployment\nspec:\n  template:\n    spec:\n      containers:\n      \
             - name: redis\n        image: redis\n        env: [{name: PORT, value: '2'}]\n      - name: rl\n        image: \
             envoyproxy/ratelimit:master\n        envFrom:\n        - configMapRef: {name: limits}\n        env:\n        - \
             {name: PORT, value: '3'}\n        - {name: USE_STATSD, value: false}\n        - name: REDIS_AUTH\n          \
             valueFrom: {secretKeyRef: {name: redis, key: password}}\n",
        );
        assert_eq!(pairs(&found), [("PORT", "3"), ("USE_STATSD", "false")]);
        assert_eq!(
            found.not_seen,
            [
                "REDIS_AUTH: its value is in secretKeyRef redis, key password",
                "all variables of configMapRef limits"
            ]
        );
    }

    #[test]
    fn a_service_of_compose_is_read_in_both_of_its_forms() {
        for environment in ["[PORT=3, 'A=b=c', HOME]", "{PORT: 3, A: b=c, HOME: '${HOME}'}"] {
            let found = read(&format!(
                "services:\n  redis: {{image: redis, environment: [PORT=2]}}\n  limiter:\n    image: \
                 envoyproxy/ratelimit\n    environment: {environment}\n"
            ));
            assert_eq!(pairs(&found), [("A", "b=c"), ("PORT", "3")], "{environment}");
            assert_eq!(found.not_seen.len(), 1, "{environment}");
        }
    }

    #[test]
    fn what_is_no_variable_of_a_service_is_told_without_its_text() {
        let found =
            read("services: {a: {image: ratelimit, environment: [PORT=1, 'REDIS_AUTH: open-sesame']}}\n");
        assert_eq!(found.not_seen, ["an item of `environment` that is no NAME=VALUE"]);
    }

    #[test]
    fn what_has_no_variables_has_none() {
        for text in ["", "a: [", "kind: Service\n", "containers: [{env: []}, {env: []}]"] {
            assert!(read(text).variables.is_empty(), "{text}");
        }
    }
}
