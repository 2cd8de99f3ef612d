//! The predicate, row by row.

use super::*;

const NOW: u64 = 1_000_000;
const FRESH: Freshness = Freshness { now_ms: NOW, ttl_ms: 5_000, away: None };

#[expect(clippy::unnecessary_wraps, reason = "reads as the field it fills")]
fn now(value: u64) -> Option<Signal> {
    Some(Signal { value, at_ms: NOW })
}

/// T = 100: the engine says `said`, the sidecar counts `counted`.
fn decode(said: Option<u64>, counted: Option<u64>) -> Rank {
    Rank {
        active_decode_blocks: said.and_then(now),
        tracked_decode_blocks: counted.and_then(now),
        kv_total_blocks: Some(100),
        ..Rank::default()
    }
}

fn prefill(value: u64, batch: Option<u64>) -> Rank {
    Rank { active_prefill_tokens: now(value), max_num_batched_tokens: batch, ..Rank::default() }
}

fn decode_above(threshold: f64) -> Config {
    Config { active_decode_blocks_threshold: Some(threshold), ..Config::default() }
}

fn prefill_above(threshold: u64) -> Config {
    Config { active_prefill_tokens_threshold: Some(threshold), ..Config::default() }
}

fn fraction_above(threshold: f64) -> Config {
    Config { active_prefill_tokens_threshold_frac: Some(threshold), ..Config::default() }
}

fn busy(rank: Rank, config: &Config) -> bool {
    judge(&[rank], config, &FRESH).busy
}

#[test]
fn either_source_suffices_p1_p2_p3() {
    let config = decode_above(0.6);
    assert!(busy(decode(Some(10), Some(90)), &config));
    assert!(busy(decode(Some(90), None), &config));
    assert!(busy(decode(None, Some(90)), &config));
    assert!(!busy(decode(None, None), &config));
    let judged = judge(&[decode(Some(70), Some(90))], &config, &FRESH);
    let mut text = String::new();
    judged.reasons.iter().for_each(|r| r.write("0.6", &mut text).expect("a string takes all"));
    assert_eq!(text, "0:decode 90/100>0.6 tracked_decode_blocks");
}

#[test]
fn only_configured_checks_fire_p4_p5_p6() {
    let full =
        Rank { active_prefill_tokens: now(5_000), max_num_batched_tokens: Some(1_000), ..decode(Some(100), None) };
    assert!(!busy(full, &Config::default()));
    assert!(!busy(prefill(5_000, Some(1_000)), &decode_above(0.6)));
    assert!(!busy(decode(Some(90), Some(90)), &prefill_above(MAX_INTEGER)));
    assert!(!busy(decode(Some(90), Some(90)), &fraction_above(2.0)));
}

#[test]
fn prefill_checks_p7_p8() {
    assert!(busy(prefill(5_000, None), &prefill_above(1_000)));
    assert!(!busy(prefill(1_000, None), &prefill_above(1_000)));
    assert!(busy(prefill(1, None), &prefill_above(0)));
    assert!(!busy(prefill(0, None), &prefill_above(0)));
    assert!(busy(prefill(2_500, Some(1_000)), &fraction_above(2.0)));
    assert!(!busy(prefill(2_000, Some(1_000)), &fraction_above(2.0)));
    let counted = Rank { tracked_prefill_tokens: now(2_001), ..prefill(10, Some(1_000)) };
    assert!(busy(counted, &fraction_above(2.0)));
}

#[test]
fn all_declared_ranks_must_be_busy_p9() {
    let config = decode_above(0.6);
    let (full, silent) = (decode(None, Some(90)), Rank { kv_total_blocks: Some(100), ..Rank::default() });
    assert!(!judge(&[full, silent], &config, &FRESH).busy);
    assert_eq!(judge(&[full, silent], &config, &FRESH).reasons.len(), 1);
    assert!(judge(&[full, full], &config, &FRESH).busy);
    assert!(!judge(&[], &config, &FRESH).busy);
}

#[test]
fn nothing_latches_p10_p11() {
    let config = decode_above(0.6);
    assert!(busy(decode(Some(10), Some(90)), &config));
    assert!(!busy(decode(Some(10), Some(10)), &config));
    let aged = |said_age: u64, counted_age: u64| Rank {
        active_decode_blocks: Some(Signal { value: 10, at_ms: NOW - said_age }),
        tracked_decode_blocks: Some(Signal { value: 90, at_ms: NOW - counted_age }),
        ..decode(None, None)
    };
    assert!(busy(aged(0, 4_999), &config), "a figure counts until it is load_ttl_ms old");
    assert!(!busy(aged(0, 5_000), &config), "the fresh low figure remains");
    assert!(!busy(aged(9_000, 9_000), &config), "a silent rank is free");
    assert_eq!(judge(&[aged(100, 4_000)], &config, &FRESH).due_ms, Some(NOW + 1_000));
    assert_eq!(judge(&[aged(4_000, 9_000)], &config, &FRESH).due_ms, None, "not busy, nothing to wait for");
}

#[test]
fn an_absence_of_redis_does_not_age_a_signal_while_it_is_made_up_for() {
    let config = decode_above(0.6);
    let rank = |age| Rank { active_decode_blocks: Some(Signal { value: 90, at_ms: NOW - age }), ..decode(None, None) };
    let away = Freshness { away: Some(Away { lasted_ms: 8_000, until_ms: NOW + 3_000 }), ..FRESH };
    assert_eq!(judge(&[rank(9_000)], &config, &away).due_ms, Some(NOW + 3_000));
    assert_eq!(judge(&[rank(12_000)], &config, &away).due_ms, Some(NOW + 1_000));
    assert!(!judge(&[rank(13_000)], &config, &away).busy);
    assert_eq!(judge(&[rank(1_000)], &config, &away).due_ms, Some(NOW + 4_000));
}

#[test]
fn a_signal_from_the_future_counts_as_now() {
    let ahead = Rank { active_decode_blocks: Some(Signal { value: 90, at_ms: NOW + 30_000 }), ..decode(None, None) };
    assert!(busy(ahead, &decode_above(0.6)));
}

#[test]
fn f043_ratios_are_divided_and_compared_strictly() {
    let at = |value, total, threshold| {
        busy(Rank { kv_total_blocks: Some(total), ..decode(Some(value), None) }, &decode_above(threshold))
    };
    assert!(!at(85, 100, 0.85));
    assert!(at(86, 100, 0.85));
    assert!(!at(8_500_000, 10_000_000, 0.85));
    assert!(at(8_500_001, 10_000_000, 0.85));
    assert!(at(1, 1, 0.85));
    assert!(!at(0, 1, 0.85));
    assert!(!at(57, 100, 0.57));
    assert!(!at(29, 100, 0.29));
    assert!(!at(100, 100, 1.0));
    assert!(at(1, 100, 0.0));
}

#[test]
fn f045_large_figures_are_exact() {
    let config = prefill_above(1_000_000_000);
    assert!(!busy(prefill(999_999_999, None), &config));
    assert!(!busy(prefill(1_000_000_000, None), &config));
    assert!(busy(prefill(1_000_000_001, None), &config));
    let top = MAX_INTEGER;
    assert!(busy(prefill(top, None), &prefill_above(top - 1)));
    assert!(!busy(prefill(top, None), &prefill_above(top)));
}

#[test]
fn f047_no_total_no_check() {
    let both = Config { active_decode_blocks_threshold: Some(0.8), ..fraction_above(0.5) };
    for (value, total) in [(0, Some(0)), (5, Some(0)), (5, None)] {
        assert!(!busy(Rank { kv_total_blocks: total, ..decode(Some(value), None) }, &both));
    }
    assert!(!busy(prefill(10, Some(0)), &both));
    assert!(!busy(prefill(10, None), &both));
    assert!(!busy(decode(Some(10), None), &both));
    assert!(busy(prefill(51, Some(100)), &both));
}
