//! Variables of a container in a Kubernetes manifest, or of a service in a compose file.

use serde_yaml::{Mapping, Value};

use crate::env_file::{FileVariables, is_name};
use crate::yaml::documents;

/// Variables that identify a container of envoyproxy/ratelimit, whatever the name of its image.
const IDENTIFYING_VARIABLES: [&str; 4] =
    ["REDIS_SOCKET_TYPE", "RUNTIME_SUBDIRECTORY", "RUNTIME_ROOT", "CONFIG_TYPE"];

/// Collects the variables of the container that is the rate-limit service.
pub(super) fn read(text: &str) -> FileVariables {
    let mut containers = Vec::new();
    let mut found = FileVariables::default();
    let documents = documents(text);
    for document in &documents {
        match document {
            Ok(document) => collect(document, &mut containers),
            Err(error) => found.not_seen.push(error.clone()),
        }
    }
    let ours = containers.iter().find(|container| is_ratelimit(container)).or(match &*containers {
        [only] => Some(only),
        _ => None,
    });
    if let Some(container) = ours {
        variables(container, &mut found);
    }
    found
}

/// Collects every object with variables. The parser bounds the depth.
fn collect<'a>(value: &'a Value, into: &mut Vec<&'a Mapping>) {
    match value {
        Value::Mapping(fields) => {
            if ["env", "envFrom", "environment", "env_file"].iter().any(|name| fields.contains_key(name)) {
                into.push(fields);
            }
            fields.values().for_each(|value| collect(value, into));
        }
        Value::Sequence(items) => items.iter().for_each(|item| collect(item, into)),
        Value::Tagged(tagged) => collect(&tagged.value, into),
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => {}
    }
}

fn is_ratelimit(container: &Mapping) -> bool {
    let is_named =
        |field| container.get(field).and_then(Value::as_str).is_some_and(|it| it.contains("ratelimit"));
    let mut found = FileVariables::default();
    variables(container, &mut found);
    is_named("image")
        || is_named("name")
        || IDENTIFYING_VARIABLES.iter().any(|name| found.variables.contains_key(*name))
}

fn variables(container: &Mapping, found: &mut FileVariables) {
    for item in container.get("env").and_then(Value::as_sequence).into_iter().flatten() {
        let Some(name) = item.get("name").and_then(Value::as_str) else { continue };
        match (item.get("value"), item.get("valueFrom")) {
            (Some(value), _) => insert(found, name, value),
            (None, Some(from)) => found.not_seen.push(format!("{name}: value in {}", origin(from))),
            (None, None) => insert(found, name, &Value::Null),
        }
    }
    for from in container.get("envFrom").and_then(Value::as_sequence).into_iter().flatten() {
        found.not_seen.push(format!("all variables of {}", origin(from)));
    }
    match container.get("environment") {
        Some(Value::Mapping(pairs)) => {
            let named = pairs.iter().filter_map(|(name, value)| Some((name.as_str()?, value)));
            named.for_each(|(name, value)| insert(found, name, value));
        }
        Some(Value::Sequence(lines)) => {
            for line in lines.iter().filter_map(Value::as_str) {
                match line.split_once('=') {
                    Some((name, value)) => insert(found, name, &Value::String(value.to_owned())),
                    None if is_name(line) => found.not_seen.push(format!("{line}: no value")),
                    // May be part of a secret.
                    None => found.not_seen.push("an item of `environment` that is not NAME=VALUE".to_owned()),
                }
            }
        }
        _ => {}
    }
    if container.contains_key("env_file") {
        found.not_seen.push("all variables of `env_file`".to_owned());
    }
}

/// Adds a variable. The value of a reference to other variables is unknown.
fn insert(found: &mut FileVariables, name: &str, value: &Value) {
    let value = match value {
        Value::String(text) => text.clone(),
        Value::Bool(value) => value.to_string(),
        Value::Number(number) => number.to_string(),
        Value::Tagged(tagged) => return insert(found, name, &tagged.value),
        Value::Null | Value::Sequence(_) | Value::Mapping(_) => String::new(),
    };
    match value.contains("${") || value.contains("$(") {
        true => found.not_seen.push(format!("{name}: value refers to other variables")),
        false => {
            found.variables.insert(name.to_owned(), value);
        }
    }
}

/// Origin of a value, such as `secretKeyRef redis, key password`.
fn origin(from: &Value) -> String {
    let kinds = from.as_mapping().into_iter().flatten().filter(|(_, value)| value.is_mapping());
    let origins = kinds.filter_map(|(kind, value)| Some((kind.as_str()?, value))).map(|(kind, value)| {
        let field = |name| value.get(name).and_then(Value::as_str);
        let name = field("name").or(field("fieldPath")).unwrap_or("?");
        field("key").map_or_else(|| format!("{kind} {name}"), |key| format!("{kind} {name}, key {key}"))
    });
    origins.collect::<Vec<_>>().join(" and ")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pairs(found: &FileVariables) -> Vec<(&str, &str)> {
        found.variables.iter().map(|(name, value)| (&**name, &**value)).collect()
    }

    #[test]
    fn the_rate_limit_container_is_selected_among_several() {
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
            ["REDIS_AUTH: value in secretKeyRef redis, key password", "all variables of configMapRef limits"]
        );
    }

    #[test]
    fn both_forms_of_compose_environments_are_read() {
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
    fn items_that_are_not_variables_are_reported_without_their_text() {
        let found =
            read("services: {a: {image: ratelimit, environment: [PORT=1, 'REDIS_AUTH: open-sesame']}}\n");
        assert_eq!(found.not_seen, ["an item of `environment` that is not NAME=VALUE"]);
    }

    #[test]
    fn documents_without_a_service_have_no_variables() {
        for text in ["", "a: [", "kind: Service\n", "containers: [{env: []}, {env: []}]"] {
            assert!(read(text).variables.is_empty(), "{text}");
        }
    }
}
