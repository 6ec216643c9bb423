//! Spans as OTLP's protobuf: `ExportTraceServiceRequest`, the few of its messages that are needed. Pure.

use super::{Span, Value};

/// What this process is, for all its spans.
#[derive(Debug, Clone, Default)]
pub(super) struct Resource(pub(super) Vec<(String, String)>);

/// The body of an export.
pub(super) fn encode(resource: &Resource, spans: &[Span]) -> Vec<u8> {
    let attributes: Vec<u8> = resource
        .0
        .iter()
        .flat_map(|(key, value)| message(1, &key_value(key, &Value::Text(value.clone()))))
        .collect();
    let mut scope = message(1, &string(1, "threadkeep"));
    for span in spans {
        scope.extend(message(2, &encode_span(span)));
    }
    message(1, &[message(1, &attributes), message(2, &scope)].concat())
}

fn encode_span(span: &Span) -> Vec<u8> {
    let mut out = [bytes(1, &span.context.trace), bytes(2, &span.context.span)].concat();
    if let Some(parent) = &span.parent {
        out.extend(bytes(4, parent));
    }
    out.extend(string(5, &span.name));
    out.extend(number(6, span.kind as u64));
    out.extend(fixed(7, span.start_ns));
    out.extend(fixed(8, span.end_ns));
    for (key, value) in &span.attributes {
        out.extend(message(9, &key_value(key, value)));
    }
    if span.failed {
        // Status: its code is 3, an error is 2.
        out.extend(message(15, &number(3, 2)));
    }
    out
}

fn key_value(key: &str, value: &Value) -> Vec<u8> {
    let value = match value {
        Value::Text(text) => string(1, text),
        Value::Number(count) => number(3, count.cast_unsigned()),
    };
    [string(1, key), message(2, &value)].concat()
}

fn varint(mut value: u64) -> Vec<u8> {
    let mut out = Vec::new();
    while value >= 0x80 {
        out.push(value as u8 | 0x80);
        value >>= 7;
    }
    out.push(value as u8);
    out
}

fn tag(field: u64, kind: u64) -> Vec<u8> {
    varint(field << 3 | kind)
}

fn number(field: u64, value: u64) -> Vec<u8> {
    [tag(field, 0), varint(value)].concat()
}

fn fixed(field: u64, value: u64) -> Vec<u8> {
    [tag(field, 1), value.to_le_bytes().to_vec()].concat()
}

fn bytes(field: u64, value: &[u8]) -> Vec<u8> {
    [tag(field, 2), varint(value.len() as u64), value.to_vec()].concat()
}

fn string(field: u64, value: &str) -> Vec<u8> {
    bytes(field, value.as_bytes())
}

fn message(field: u64, value: &[u8]) -> Vec<u8> {
    bytes(field, value)
}
