//! The YAML text as a tree whose nodes have positions.
//!
//! The tree serves the check of the file's shape, which reports all unknown and missing fields; the typed
//! reader would stop at the first. Scalars keep no value: the typed reader checks them.

use std::fmt;

use miette::SourceSpan;
use serde::{
    Deserialize, Deserializer,
    de::{MapAccess, SeqAccess, Visitor},
};
use serde_yaml::{Location, Spanned};

/// One node of the file.
#[derive(Debug)]
pub enum Node {
    /// A number, a text, a truth value.
    Scalar,
    /// Nothing, or `null`.
    Null,
    /// A sequence.
    List(Vec<Spanned<Node>>),
    /// A mapping, in the order of the text.
    Map(Vec<(Spanned<String>, Spanned<Node>)>),
}

impl Node {
    pub fn kind(&self) -> &'static str {
        match self {
            Self::Scalar => "a single value",
            Self::Null => "nothing",
            Self::List(_) => "a list",
            Self::Map(_) => "a mapping",
        }
    }
}

/// The position of a value in the text.
pub fn span_at(location: &Location) -> SourceSpan {
    let span = location.span();
    let byte = |n: Option<u64>| usize::try_from(n.unwrap_or(0)).unwrap_or(0);
    (byte(span.byte_offset()), byte(span.byte_len()).max(1)).into()
}

struct NodeVisitor;

macro_rules! scalar {
    ($($visit:ident: $type:ty),*) => {
        $(fn $visit<E>(self, _: $type) -> Result<Node, E> {
            Ok(Node::Scalar)
        })*
    };
}

impl<'de> Visitor<'de> for NodeVisitor {
    type Value = Node;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("any YAML")
    }

    scalar!(visit_bool: bool, visit_i64: i64, visit_u64: u64, visit_i128: i128, visit_u128: u128,
        visit_f64: f64, visit_str: &str, visit_bytes: &[u8]);

    fn visit_unit<E>(self) -> Result<Node, E> {
        Ok(Node::Null)
    }

    fn visit_none<E>(self) -> Result<Node, E> {
        Ok(Node::Null)
    }

    fn visit_some<D: Deserializer<'de>>(self, deserializer: D) -> Result<Node, D::Error> {
        Node::deserialize(deserializer)
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut access: A) -> Result<Node, A::Error> {
        let mut items = Vec::new();
        while let Some(item) = access.next_element()? {
            items.push(item);
        }
        Ok(Node::List(items))
    }

    fn visit_map<A: MapAccess<'de>>(self, mut access: A) -> Result<Node, A::Error> {
        let mut entries = Vec::new();
        while let Some(entry) = access.next_entry()? {
            entries.push(entry);
        }
        Ok(Node::Map(entries))
    }
}

impl<'de> Deserialize<'de> for Node {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(NodeVisitor)
    }
}
