use proptest::prelude::*;
use serde_json::Value;

use super::*;

fn ok(body: &str) -> Parsed {
    parse(body.as_bytes()).unwrap_or_else(|e| panic!("{e}: {body}"))
}

fn refused(body: &str) -> String {
    match parse(body.as_bytes()) {
        Err(BodyError::Invalid(message)) => message,
        other => panic!("{other:?}: {body}"),
    }
}

#[test]
fn the_three_things_are_found_wherever_they_stand() {
    let parsed =
        ok(r#"{"messages":[{"role":"user","content":"hello"}],"stream":true,"n":[1,{"a":2}],"model":"org/m"}"#);
    assert_eq!((parsed.model.as_str(), parsed.stream, parsed.tokens), ("org/m", true, 2));
    let parsed = ok(" { \"mod\\u0065l\" : \"m\\u00e9\" } ");
    assert_eq!((parsed.model.as_str(), parsed.stream, parsed.tokens), ("mé", false, 0));
}

#[test]
fn f113_a_model_must_be_a_name() {
    assert_eq!(refused("{}"), "model is missing");
    for value in ["null", "123", "[]", "{}", "true", "1.5", "-1"] {
        assert_eq!(refused(&format!(r#"{{"model":{value}}}"#)), "model must be a string");
    }
    assert_eq!(refused(r#"{"model":""}"#), "model is empty");
    for top in
        ["[]", "\"x\"", "null", "", "  ", "1", "{\"model\":", "{\"model\":\"m\"} x", "{\"model\":\"m\",}", "\u{feff}{}"]
    {
        assert!(refused(top).starts_with("the body is not valid"), "{top:?}");
    }
    let long = format!(r#"{{"model":"{}"}}"#, "x".repeat(10_000));
    assert_eq!(parse(long.as_bytes()), Err(BodyError::NoSuchModel));
    assert_eq!(parse(br#"{"model":"a\u0000b"}"#), Err(BodyError::NoSuchModel));
}

#[test]
fn f113_what_the_router_does_not_need_passes() {
    for messages in ["null", "\"x\"", "7", "{}", "[[[[[[[[[[[[[[[[[[[[[]]]]]]]]]]]]]]]]]]]]]"] {
        ok(&format!(r#"{{"model":"m","messages":{messages}}}"#));
    }
    for stream in ["\"true\"", "1", "null", "[]", "{}", "0.5", "-1", "false"] {
        assert!(!ok(&format!(r#"{{"model":"m","stream":{stream}}}"#)).stream);
    }
    let deep = format!(r#"{{"model":"m","x":{}{}}}"#, "[".repeat(100_000), "]".repeat(100_000));
    ok(&deep);
    let deep = format!(r#"{{"model":"m","messages":{}{}}}"#, "[".repeat(100_000), "]".repeat(100_000));
    ok(&deep);
    ok(&format!(r#"{{"model":"m"{}}}"#, " ".repeat(1 << 20)));
    ok(&format!(r#"{{"model":"m","x":{}}}"#, "9".repeat(10 << 20)));
    refused(&format!(r#"{{"model":"m","x":{}"#, "[".repeat(100_000)));
}

#[test]
fn a_key_that_decides_must_not_be_there_twice() {
    assert!(refused(r#"{"model":"a","model":"b"}"#).contains("model is there twice"));
    assert!(refused(r#"{"model":"a","mod\u0065l":"a"}"#).contains("model is there twice"));
    assert!(refused(r#"{"model":"a","stream":null,"stream":true}"#).contains("stream is there twice"));
    ok(r#"{"model":"a","x":{"model":"b","model":"c"},"temperature":1,"temperature":2}"#);
}

#[test]
fn a_body_must_be_utf8_as_a_whole() {
    let mut body = br#"{"model":"m","x":"?"}"#.to_vec();
    let at = body.iter().position(|b| *b == b'?').expect("the mark");
    body[at] = 0xff;
    assert_eq!(parse(&body), Err(BodyError::Invalid(format!("the body is not UTF-8 from byte {at} on"))));
}

fn any_json() -> impl Strategy<Value = Value> {
    let leaf = prop_oneof![
        Just(Value::Null),
        any::<bool>().prop_map(Value::from),
        any::<i64>().prop_map(Value::from),
        any::<f64>().prop_map(Value::from),
        ".{0,12}".prop_map(Value::from),
    ];
    leaf.prop_recursive(5, 40, 6, |inner| {
        let key = prop_oneof!["model|stream|messages|content|text|prompt|input", ".{0,6}"];
        prop_oneof![
            prop::collection::vec(inner.clone(), 0..6).prop_map(Value::from),
            prop::collection::vec((key, inner), 0..6).prop_map(|fields| Value::Object(fields.into_iter().collect())),
        ]
    })
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 2000, ..ProptestConfig::default() })]

    #[test]
    fn bytes_never_panic(body in prop::collection::vec(any::<u8>(), 0..200)) {
        let _ = parse(&body);
    }

    #[test]
    fn almost_json_never_panics(body in r#"[\[\]{}",:0-9a-z\\u \n.e+-]{0,60}|\{"model":"[^"]{0,9}"[\[\]{}",:0-9\\u]{0,40}"#) {
        let _ = parse(body.as_bytes());
    }

    /// Whatever a real parser takes for an object with a model is taken, with the same model; nothing else is.
    #[test]
    fn agrees_with_a_parser_that_builds_a_tree(value in any_json(), cut in 0_usize..400) {
        let text = value.to_string();
        let mut end = cut.min(text.len());
        while !text.is_char_boundary(end) { end -= 1; }
        for text in [&text[..], &text[..end]] {
            let tree: Option<Value> = serde_json::from_str(text).ok();
            let name = tree.as_ref().and_then(|tree| tree.as_object()?.get("model")?.as_str());
            let want = name.and_then(|name| ModelName::parse(name).ok());
            let stream = tree.as_ref().and_then(|tree| tree.as_object()?.get("stream")?.as_bool()).unwrap_or(false);
            match parse(text.as_bytes()) {
                Ok(parsed) => {
                    prop_assert_eq!(Some(&parsed.model), want.as_ref());
                    prop_assert_eq!(parsed.stream, stream);
                    prop_assert!(parsed.tokens <= text.len() as u64);
                }
                Err(_) => prop_assert_eq!(want, None),
            }
        }
    }
}
