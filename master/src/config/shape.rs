//! Checks the shape of a run file against its own schema: unknown fields, missing ones, a list where a value
//! belongs.
//!
//! The published schema itself is checked against. Values are checked by [`super::resolve`], but for those
//! that the typed reader refuses: [`named`] says what was to be there.

use miette::SourceSpan;
use serde_json::{Map, Value};
use serde_yaml::Spanned;

use super::{
    problem::{Problem, nearest},
    tree::{Node, span_at},
};

/// All problems of the shape of `root`.
pub fn check(root: &Spanned<Node>, schema: &Value) -> Vec<Problem> {
    let mut problems = Vec::new();
    visit("", span_at(&root.referenced), &root.value, Some(schema), &mut problems);
    problems
}

/// The problem with a value that the typed reader has found at `span` of `text`, with the field's path and
/// what belongs there; `None` where there is no value.
pub fn named(root: &Spanned<Node>, schema: &Value, text: &str, span: SourceSpan) -> Option<Problem> {
    let (path, schema) = value_at("", root, schema, span.offset())?;
    let found = text.get(span.offset()..span.offset() + span.len())?;
    let most = match schema.get("format").and_then(Value::as_str) {
        Some("uint8") => u8::MAX.to_string(),
        Some("uint32") => u32::MAX.to_string(),
        _ => String::new(),
    };
    let belongs = match schema.get("type").and_then(first_type)? {
        "integer" if most.is_empty() => "a whole number".into(),
        "integer" => format!("a whole number from 0 to {most}"),
        "boolean" => "`true` or `false`".into(),
        _ => return None,
    };
    Some(Problem::new(path, span, format!("`{found}` is not {belongs}")))
}

fn value_at<'a>(
    path: &str,
    node: &Spanned<Node>,
    schema: &'a Value,
    byte: usize,
) -> Option<(String, &'a Value)> {
    let schema = alternative(schema, &node.value);
    match &node.value {
        Node::Map(entries) => entries.iter().find_map(|(key, node)| {
            value_at(&join(path, &key.value), node, schema.get("properties")?.get(&key.value)?, byte)
        }),
        Node::List(items) => items.iter().enumerate().find_map(|(index, item)| {
            value_at(&format!("{path}[{index}]"), item, schema.get("items")?, byte)
        }),
        Node::Scalar | Node::Null => {
            (span_at(&node.referenced).offset() == byte).then(|| (path.to_owned(), schema))
        }
    }
}

fn visit(path: &str, span: SourceSpan, node: &Node, schema: Option<&Value>, problems: &mut Vec<Problem>) {
    let Some(schema) = schema.map(|schema| alternative(schema, node)) else { return };
    match (node, expected(schema)) {
        (Node::Map(entries), Expected::Map) => visit_map(path, span, entries, schema, problems),
        (Node::List(items), Expected::List) => {
            for (index, item) in items.iter().enumerate() {
                let path = format!("{path}[{index}]");
                visit(&path, span_at(&item.referenced), &item.value, schema.get("items"), problems);
            }
        }
        (Node::Scalar, Expected::Value) => {}
        (found, expected) => problems.push(mismatch(path, span, found, &expected)),
    }
}

fn visit_map(
    path: &str,
    span: SourceSpan,
    entries: &[(Spanned<String>, Spanned<Node>)],
    schema: &Value,
    problems: &mut Vec<Problem>,
) {
    let no_fields = Map::new();
    let fields = schema.get("properties").and_then(Value::as_object).unwrap_or(&no_fields);
    let others = schema.get("additionalProperties").filter(|others| others.is_object());
    for (key, node) in entries {
        let path = join(path, &key.value);
        match fields.get(&key.value).or(others) {
            None => problems.push(unknown(&path, key, fields)),
            Some(_) if matches!(node.value, Node::Null) && !is_required(schema, &key.value) => {}
            field => visit(&path, span_at(&node.referenced), &node.value, field, problems),
        }
    }
    let is_there = |name: &str| entries.iter().any(|(key, _)| key.value == name);
    for name in required(schema).filter(|name| !is_there(name)) {
        let help = fields.get(name).and_then(|field| field.get("description")).and_then(Value::as_str);
        let problem = Problem::new(join(path, name), span, format!("the field `{name}` is missing"));
        problems.push(Problem { help: help.map(Into::into), ..problem });
    }
}

fn required(schema: &Value) -> impl Iterator<Item = &str> {
    schema.get("required").and_then(Value::as_array).into_iter().flatten().filter_map(Value::as_str)
}

fn is_required(schema: &Value, name: &str) -> bool {
    required(schema).any(|required| required == name)
}

fn unknown(path: &str, key: &Spanned<String>, fields: &Map<String, Value>) -> Problem {
    let known = fields.keys().map(String::as_str);
    let list = format!("known here are {}", known.clone().collect::<Vec<_>>().join(", "));
    let help = match (simulated(&key.value), nearest(&key.value, known)) {
        (Some(help), _) => help.into(),
        (None, Some(name)) => format!("did you mean `{name}`? {list}"),
        (None, None) => list,
    };
    let message = format!("there is no field `{}`", key.value);
    Problem::new(path, span_at(&key.referenced), message).help(help)
}

/// Help on a field that only the machine files of `simulate` have.
fn simulated(word: &str) -> Option<&'static str> {
    match word {
        "sets" | "groups" | "queues" | "prime_time" => {
            Some("node sets, their groups, queues and hours belong into `scheduler`, with `policy: batch`")
        }
        "partition" | "partitions" => Some(
            "a cluster is divided by `scheduler.partitions`, with `policy: batch`, and a job names its \
             `partition`; those of a log are in the machine file of `simulate`",
        ),
        "cpus" | "boxes" | "usage_limit" => Some(
            "a live run does not divide nodes by CPUs; boxes and `rms` are only simulated: \
             `coswitch simulate --cpus N`",
        ),
        _ => None,
    }
}

fn mismatch(path: &str, span: SourceSpan, found: &Node, expected: &Expected) -> Problem {
    let field = if path.is_empty() { "the file" } else { path };
    let expected = match expected {
        Expected::Map => "a mapping (`field: value` lines)",
        Expected::List => "a list (`- …` lines or `[…, …]`)",
        Expected::Value => "a single value",
    };
    Problem::new(field, span, format!("{} stands where {expected} belongs", found.kind()))
}

fn join(path: &str, name: &str) -> String {
    if path.is_empty() { name.into() } else { format!("{path}.{name}") }
}

enum Expected {
    Map,
    List,
    Value,
}

fn expected(schema: &Value) -> Expected {
    match schema.get("type").and_then(first_type) {
        Some("object") => Expected::Map,
        Some("array") => Expected::List,
        _ => Expected::Value,
    }
}

fn first_type(kind: &Value) -> Option<&str> {
    kind.as_str().or_else(|| kind.as_array()?.first()?.as_str())
}

/// The alternative of `anyOf: [schema, …, null]` that has the shape of the node, else the first. Optional
/// fields and choices of shapes are written so.
fn alternative<'a>(schema: &'a Value, node: &Node) -> &'a Value {
    let Some(all) = schema.get("anyOf").and_then(Value::as_array) else { return schema };
    let some = all.iter().filter(|one| one.get("type") != Some(&"null".into()));
    let mut some = some.map(|one| alternative(one, node)).peekable();
    let first = some.peek().copied().unwrap_or(schema);
    let could_be = |one: &&Value| match (node, expected(one)) {
        (Node::Map(_), kind) => matches!(kind, Expected::Map),
        (Node::List(_), kind) => matches!(kind, Expected::List),
        (_, kind) => matches!(kind, Expected::Value),
    };
    some.find(could_be).unwrap_or(first)
}
