//! Who serves which slot of a cluster.

use futures_util::stream::{FuturesUnordered, StreamExt};
use redis::Value;

use super::Connector;
use super::sentinel::not_sent;
use crate::config::redis_url::Node;
use crate::store::error::CallError;

/// The slot of a key: CRC16 (XMODEM) of its hash tag, modulo 16,384.
pub(in crate::store) fn slot(key: &str) -> u16 {
    let tag = key.split_once('{').and_then(|(_, rest)| rest.split_once('}')).map(|(tag, _)| tag);
    let text = tag.filter(|tag| !tag.is_empty()).unwrap_or(key);
    let step = |crc: u16, bit: bool| if bit { crc << 1 ^ 0x1021 } else { crc << 1 };
    let crc = text
        .bytes()
        .fold(0u16, |crc, byte| (0..8).fold(crc ^ u16::from(byte) << 8, |crc, _| step(crc, crc & 0x8000 != 0)));
    crc % 16_384
}

/// Asks all nodes at once and takes the first map.
pub(super) async fn slots(c: &Connector, mut nodes: Vec<Node>) -> Result<Vec<(u16, u16, Node)>, CallError> {
    nodes.sort_by_key(Node::to_string);
    nodes.dedup();
    let mut asked: FuturesUnordered<_> = nodes.iter().map(|node| ask(c, node)).collect();
    let mut last = CallError::NotSent("the cluster has no nodes".into());
    while let Some(answer) = asked.next().await {
        match answer {
            Ok(map) => return Ok(map),
            Err(e) => last = e,
        }
    }
    Err(not_sent(last))
}

async fn ask(c: &Connector, node: &Node) -> Result<Vec<(u16, u16, Node)>, CallError> {
    let answer = c.ask(node, c.login(), redis::cmd("CLUSTER").arg("SLOTS")).await?;
    let map = parse(answer, node);
    if map.is_empty() { Err(CallError::NotSent(format!("{node} knows of no slots"))) } else { Ok(map) }
}

/// `[from, to, [host, port, id, …], replicas …] …`. An empty host is the one that was asked; `?` is unknown.
fn parse(answer: Value, asked: &Node) -> Vec<(u16, u16, Node)> {
    let Value::Array(ranges) = answer else { return Vec::new() };
    let range = |range: Value| {
        let Value::Array(parts) = range else { return None };
        let mut parts = parts.into_iter();
        let from = number(parts.next()?)?;
        let to = number(parts.next()?)?;
        let Value::Array(primary) = parts.next()? else { return None };
        let mut primary = primary.into_iter();
        let host = match primary.next()? {
            Value::Nil => asked.host.clone(),
            host => redis::from_redis_value::<String>(host).ok()?,
        };
        let host = if host.is_empty() { asked.host.clone() } else { host };
        let port = number(primary.next()?)?;
        (host != "?").then_some((from, to, Node { host, port }))
    };
    ranges.into_iter().filter_map(range).collect()
}

fn number(value: Value) -> Option<u16> {
    redis::from_redis_value(value).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn slots_are_those_of_redis() {
        assert_eq!(slot("123456789"), 0x31c3, "the check value of the CRC");
        assert_eq!(slot("foo"), 12_182);
        assert_eq!(slot("tidegate:{foo}:gate"), 12_182, "only the tag counts");
        assert_eq!(slot("a{}b"), slot("a{}b{c}"[..4].trim()), "an empty tag is none");
        assert_ne!(slot("a{}b"), slot("b"));
    }

    #[test]
    fn a_map_is_read() {
        let text = |s: &str| Value::BulkString(s.into());
        let node = |host: Value, port| Value::Array(vec![host, Value::Int(port), text("id")]);
        let range = |from, to, node| Value::Array(vec![Value::Int(from), Value::Int(to), node]);
        let answer = Value::Array(vec![
            range(0, 99, node(text("10.0.0.1"), 7000)),
            range(100, 199, node(Value::Nil, 7001)),
            range(200, 299, node(text("?"), 7002)),
        ]);
        let asked = Node { host: "seed".into(), port: 1 };
        let want = vec![
            (0, 99, Node { host: "10.0.0.1".into(), port: 7000 }),
            (100, 199, Node { host: "seed".into(), port: 7001 }),
        ];
        assert_eq!(parse(answer, &asked), want);
        assert!(parse(Value::Nil, &asked).is_empty());
    }
}
