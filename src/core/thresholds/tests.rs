//! Accepted and refused texts of every field.

use super::*;

fn accepts(field: Field, texts: &[&str]) {
    for text in texts {
        assert!(field.check(text).is_ok(), "{field} must accept {text:?}");
    }
}

fn refuses(field: Field, texts: &[&str]) {
    for text in texts {
        let problem = field.check(text).expect_err(&format!("{field} must refuse {text:?}"));
        assert!(problem.to_string().starts_with(field.name()), "{problem}");
        assert!(problem.to_string().contains(&format!("{text:?}")), "{problem}");
    }
}

/// What no numeric field takes.
const NO_NUMBERS: &[&str] = &[
    "", " ", "-1", "-0", "+1", " 1", "1 ", "1\n", "\t1", "0x1", "0X1F", "1_000", "1,5", "nan", "NaN", "inf", "-inf",
    "Infinity", "null", "None", "true", "1e309", "1e", "e5", ".", "1.2.3", "1e5.5", "1e+", "--1", "१", "1f",
];

#[test]
fn decode_threshold_is_a_finite_share() {
    accepts(
        Field::ActiveDecodeBlocks,
        &["0", "0.0", "1", "1.0", "0.85", "8.5e-1", "85E-2", ".5", "1.", "1e0", "000.5"],
    );
    refuses(Field::ActiveDecodeBlocks, NO_NUMBERS);
    refuses(Field::ActiveDecodeBlocks, &["1.0000000000000002", "1.5", "2", "85", "1e1"]);
}

#[test]
fn prefill_fraction_is_finite_and_at_least_zero() {
    accepts(Field::ActivePrefillTokensFrac, &["0", "0.5", "2.0", "64", "1e3", "1.7976931348623157e308", "1e-400"]);
    refuses(Field::ActivePrefillTokensFrac, NO_NUMBERS);
    refuses(Field::ActivePrefillTokensFrac, &["1.8e308", &"9".repeat(65)]);
}

#[test]
fn f043_absolute_threshold_is_exact_up_to_two_to_the_53_less_1() {
    accepts(Field::ActivePrefillTokens, &["0", "007", "1000000000", "9007199254740991"]);
    refuses(Field::ActivePrefillTokens, NO_NUMBERS);
    refuses(
        Field::ActivePrefillTokens,
        &["9007199254740992", "9007199254740993", "18446744073709551616", "1e3", "1.0", "0.5", &"0".repeat(65)],
    );
    assert_eq!(Field::ActivePrefillTokens.check("9007199254740991"), Ok(Value::Integer(MAX_INTEGER)));
}

#[test]
fn bounded_integers() {
    accepts(Field::MaxInflight, &["0", "1", "9007199254740991"]);
    refuses(Field::MaxInflight, NO_NUMBERS);
    accepts(Field::LoadTtlMs, &["100", "5000", "3600000"]);
    refuses(Field::LoadTtlMs, &["0", "99", "3600001", "5e3"]);
    accepts(Field::KvBlockSize, &["1", "16", "1048576"]);
    refuses(Field::KvBlockSize, &["0", "1048577", "16.0"]);
}

#[test]
fn switches_and_modes_are_words() {
    for field in [Field::TrackOutputBlocks, Field::TrackActiveBlocks] {
        accepts(field, &["true", "false"]);
        refuses(field, &["", "True", "1", "0", "yes", " true"]);
    }
    accepts(Field::RouterMode, &["round-robin", "random", "power-of-two", "least-loaded", "kv", "direct"]);
    refuses(Field::RouterMode, &["", "round_robin", "KV", "least-loaded ", "device-aware-weighted"]);
}

#[test]
fn names_lead_back_to_their_fields() {
    for field in Field::ALL {
        assert_eq!(Field::parse(field.name()), Ok(field));
    }
    assert_eq!(check("threshold", "1"), Err(Problem::Field("threshold".into())));
    assert_eq!(check("max_inflight", "7"), Ok(Value::Integer(7)));
}

#[test]
fn a_refused_text_is_cut_at_200_bytes_on_a_character() {
    let long = "é".repeat(150);
    let Err(Problem::Value { value, .. }) = Field::MaxInflight.check(&long) else { panic!("must be refused") };
    assert_eq!(value, "é".repeat(100));
    let Err(Problem::Value { value, .. }) = Field::MaxInflight.check(&format!("x{long}")) else { panic!("refused") };
    assert_eq!(value.len(), 199);
}

#[test]
fn values_in_force_have_defaults_and_survive_bad_texts() {
    let mut config = Config::of([
        ("active_decode_blocks_threshold", "0.85"),
        ("router_mode", "kv"),
        ("load_ttl_ms", "nonsense"),
        ("error:max_inflight", "x"),
        ("config_version", "3"),
    ]);
    assert_eq!(config.active_decode_blocks_threshold, Some(0.85));
    assert_eq!(config.router_mode, RouterMode::Kv);
    assert_eq!(config.load_ttl_ms, 5_000);
    assert!(config.set(Field::ActiveDecodeBlocks, Some("2")).is_err());
    assert_eq!(config.active_decode_blocks_threshold, Some(0.85));
    assert_eq!(config.set(Field::ActiveDecodeBlocks, None), Ok(()));
    assert_eq!(config.set(Field::RouterMode, None), Ok(()));
    assert_eq!(config, Config::default());
}
