// SPDX-License-Identifier: Apache-2.0
//! Checks JSON against the published schemas, as far as schemars uses JSON Schema.

use serde_json::{Map, Value};

/// Where `value` breaks `schema` (JSON Schema 2020-12), as `path: why`; empty: it is valid.
///
/// # Panics
/// If the schema has a keyword that is not checked here.
pub fn violations(schema: &Value, value: &Value) -> Vec<String> {
    let mut check = Check {
        root: schema,
        found: Vec::new(),
    };
    check.value(schema, value, "$");
    check.found
}

struct Check<'a> {
    root: &'a Value,
    found: Vec<String>,
}

impl<'a> Check<'a> {
    fn value(&mut self, schema: &'a Value, value: &Value, at: &str) {
        let keywords = match schema {
            Value::Bool(true) => return,
            Value::Object(keywords) => keywords,
            _ => return self.found.push(format!("{at}: nothing is allowed here")),
        };
        for (keyword, rule) in keywords {
            let holds = match keyword.as_str() {
                "$schema" | "$defs" | "title" | "description" | "format" | "required" => true,
                "properties" | "additionalProperties" => true,
                "type" => match rule {
                    Value::Array(kinds) => kinds.iter().any(|kind| is(value, kind)),
                    kind => is(value, kind),
                },
                "const" => rule == value,
                "enum" => rule.as_array().is_some_and(|all| all.contains(value)),
                "minimum" => value.as_f64() >= rule.as_f64() || !value.is_number(),
                "minItems" => value
                    .as_array()
                    .is_none_or(|a| a.len() as u64 >= number(rule)),
                "maxItems" => value
                    .as_array()
                    .is_none_or(|a| a.len() as u64 <= number(rule)),
                "anyOf" => self.matching(rule, value, at) > 0,
                "oneOf" => self.matching(rule, value, at) == 1,
                "$ref" => {
                    let name = rule.as_str().and_then(|r| r.strip_prefix("#/"));
                    let target = name.and_then(|name| self.root.pointer(&format!("/{name}")));
                    self.value(target.expect("the reference resolves"), value, at);
                    true
                }
                "items" => {
                    for (index, item) in value.as_array().into_iter().flatten().enumerate() {
                        self.value(rule, item, &format!("{at}[{index}]"));
                    }
                    true
                }
                other => panic!("{at}: the keyword {other} is not checked"),
            };
            if !holds {
                self.found
                    .push(format!("{at}: {value} breaks {keyword} {rule}"));
            }
        }
        if let Value::Object(object) = value {
            self.object(keywords, object, at);
        }
    }

    fn object(&mut self, keywords: &'a Map<String, Value>, object: &Map<String, Value>, at: &str) {
        let required = keywords.get("required").and_then(Value::as_array);
        for name in required.into_iter().flatten().filter_map(Value::as_str) {
            if !object.contains_key(name) {
                self.found.push(format!("{at}: {name} is missing"));
            }
        }
        let properties = keywords.get("properties").and_then(Value::as_object);
        for (name, value) in object {
            let own = properties.and_then(|properties| properties.get(name));
            if let Some(schema) = own.or_else(|| keywords.get("additionalProperties")) {
                self.value(schema, value, &format!("{at}.{name}"));
            }
        }
    }

    /// How many of the schemas the value obeys.
    fn matching(&self, schemas: &'a Value, value: &Value, at: &str) -> usize {
        let obeys = |schema: &&'a Value| {
            let mut check = Check {
                root: self.root,
                found: Vec::new(),
            };
            check.value(schema, value, at);
            check.found.is_empty()
        };
        schemas
            .as_array()
            .into_iter()
            .flatten()
            .filter(obeys)
            .count()
    }
}

fn number(rule: &Value) -> u64 {
    rule.as_u64().expect("a count")
}

fn is(value: &Value, kind: &Value) -> bool {
    match kind.as_str().expect("a type's name") {
        "null" => value.is_null(),
        "boolean" => value.is_boolean(),
        "integer" => value.is_u64() || value.is_i64(),
        "number" => value.is_number(),
        "string" => value.is_string(),
        "array" => value.is_array(),
        "object" => value.is_object(),
        other => panic!("{other} is no type"),
    }
}
