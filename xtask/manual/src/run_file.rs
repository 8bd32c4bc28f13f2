//! The page coswitch.yaml(5): every field of the run file, from its schema.

use clap_mangen::roff::{Inline, Roff, bold, italic, roman};
use serde_json::Value;

const EXAMPLE: &str = include_str!("../../../examples/cluster.yaml");
const INTRODUCTION: &str = "A run file says in YAML which machines there are, how they are \
     shared, and which jobs run there. `coswitch check FILE` says whether it is right, \
     `coswitch explain FILE` which jobs would share a turn, \
     `coswitch run FILE` runs its jobs, and `coswitch serve FILE` holds its cluster for jobs that users \
     bring. Sizes have a unit (300MiB, 1GiB), and so have times (250ms, 10s, 5min, 1h, 7d).";

pub(crate) fn page(schema: &Value, version: &str) -> Roff {
    let mut roff = Roff::new();
    roff.control("TH", ["coswitch.yaml", "5", "", &format!("coswitch {version}"), ""]);
    roff.control("SH", ["NAME"]).text([roman("coswitch.yaml - run file of coswitch")]);
    roff.control("SH", ["DESCRIPTION"]).text(inline(INTRODUCTION));
    for name in ["cluster", "scheduler", "jobs"] {
        let part = &schema["properties"][name];
        roff.control("SH", [name.to_uppercase().as_str()]).text(inline(description(part)));
        for (below, object) in objects(part) {
            fields(&mut roff, &format!("{name}{below}"), object);
        }
    }
    roff.control("SH", ["EXAMPLE"]).control("nf", []);
    for line in EXAMPLE.lines() {
        roff.text([roman(line)]);
    }
    roff.control("fi", []);
    roff.control("SH", ["SEE ALSO"]).text([roman("coswitch(1), coswitch-check(1), coswitch-schema(1)")]);
    roff
}

/// The fields of an object, those of objects below it after each.
fn fields(roff: &mut Roff, prefix: &str, object: &Value) {
    for (name, field) in object["properties"].as_object().into_iter().flatten() {
        let path = format!("{prefix}.{name}");
        let is_required =
            object["required"].as_array().is_some_and(|names| names.iter().any(|one| one == name));
        let kind = format!("{}{}", kind(field), if is_required { "; required" } else { "" });
        roff.control("TP", []).text([bold(path.as_str()), roman(": "), italic(kind)]);
        roff.text(inline(description(field)));
        for (below, object) in objects(field) {
            fields(roff, &format!("{path}{below}"), object);
        }
    }
}

fn description(schema: &Value) -> &str {
    schema["description"].as_str().unwrap_or_default()
}

/// Text in which backquotes mark what is written literally.
fn inline(text: &str) -> Vec<Inline> {
    let text = text.replace('\n', " ");
    let marked = |(index, part): (usize, &str)| if index % 2 == 0 { roman(part) } else { bold(part) };
    text.split('`').enumerate().map(marked).collect()
}

/// The objects that a value may be or hold, with what their place adds to its path.
fn objects(schema: &Value) -> Vec<(String, &Value)> {
    let own = schema.get("properties").map(|_| (String::new(), schema));
    let choices = schema["anyOf"].as_array().into_iter().flatten().flat_map(objects);
    let items = schema.get("items").map(objects).unwrap_or_default();
    let items = items.into_iter().map(|(below, object)| (format!("[]{below}"), object));
    own.into_iter().chain(choices).chain(items).collect()
}

/// What a value may be, in words; that a field may be left out is said by its description.
fn kind(schema: &Value) -> String {
    let is_null = |value: &&Value| value.is_null() || *value == "null";
    if let Some(values) = schema["enum"].as_array() {
        let words: Vec<&str> = values.iter().filter_map(Value::as_str).collect();
        return words.join(" | ");
    }
    if let Some(word) = schema["const"].as_str() {
        return word.to_owned();
    }
    if let Some(choices) = schema["anyOf"].as_array() {
        let kinds = choices.iter().filter(|choice| choice["type"] != "null").map(kind);
        return kinds.collect::<Vec<_>>().join(", or ");
    }
    let types = match &schema["type"] {
        Value::Array(types) => types.iter().filter(|one| !is_null(one)).collect(),
        one => vec![one],
    };
    let words: Vec<String> = types.iter().filter_map(|one| Some(word(one.as_str()?, schema))).collect();
    let examples: Vec<String> = schema["examples"].as_array().into_iter().flatten().map(plain).collect();
    let such_as =
        if examples.is_empty() { String::new() } else { format!(", such as {}", examples.join(", ")) };
    format!("{}{such_as}", words.join(" or "))
}

fn word(name: &str, schema: &Value) -> String {
    match name {
        "integer" | "number" => match (schema.get("minimum"), schema.get("maximum")) {
            (Some(least), Some(most)) if name == "integer" && most.as_u64() < Some(u64::from(u32::MAX)) => {
                format!("{least} to {most}")
            }
            (Some(least), _) if name == "integer" => format!("number, at least {least}"),
            _ => "number".to_owned(),
        },
        "array" => format!("list of {}", kind(&schema["items"])),
        "object" => "mapping".to_owned(),
        "boolean" => "true or false".to_owned(),
        _ => "text".to_owned(),
    }
}

fn plain(value: &Value) -> String {
    value.as_str().map_or_else(|| value.to_string(), str::to_owned)
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn kinds_are_said_in_words() {
        let cases = [
            (json!({"type": ["string", "null"], "examples": ["1GiB"]}), "text, such as 1GiB"),
            (json!({"enum": ["on", "off", null]}), "on | off"),
            (json!({"type": "integer", "minimum": 1, "maximum": 64}), "1 to 64"),
            (json!({"type": "integer", "minimum": 1, "maximum": u32::MAX}), "number, at least 1"),
            (json!({"type": "array", "items": {"type": "string"}}), "list of text"),
            (
                json!({"anyOf": [{"const": "slurm"}, {"type": "object"}, {"type": "null"}]}),
                "slurm, or mapping",
            ),
        ];
        for (schema, expected) in cases {
            assert_eq!(kind(&schema), expected, "{schema}");
        }
    }

    #[test]
    fn fields_of_lists_and_choices_are_found_with_their_paths() {
        let host = json!({"type": "object", "properties": {"host": {}}});
        let schema = json!({"anyOf": [{"type": "integer"}, {"type": "array", "items": {"anyOf": [host]}}]});
        let found = objects(&schema);
        assert_eq!(found.iter().map(|(below, _)| below.as_str()).collect::<Vec<_>>(), ["[]"]);
    }

    #[test]
    fn the_page_has_every_field_of_the_schema() {
        fn names(schema: &Value, found: &mut Vec<String>) {
            for (key, value) in schema.as_object().into_iter().flatten() {
                if key == "properties" {
                    found.extend(value.as_object().into_iter().flatten().map(|(name, _)| name.clone()));
                }
                names(value, found);
            }
            schema.as_array().into_iter().flatten().for_each(|value| names(value, found));
        }
        let schema: Value = serde_json::from_str(crate::SCHEMA).unwrap();
        let text = page(&schema, "1.2.3").to_roff().replace('\\', "");
        let (mut all, mut parts) = (Vec::new(), 0);
        names(&schema, &mut all);
        assert!(all.len() > 80, "{}", all.len());
        for name in all {
            let is_part = ["cluster", "scheduler", "jobs"].contains(&name.as_str());
            parts += usize::from(is_part);
            assert!(is_part || text.contains(&format!(".{name}fR")), "{name} is missing");
        }
        assert_eq!(parts, 3);
    }
}
