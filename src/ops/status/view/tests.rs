//! What is shown of a made-up state.

use super::*;
use crate::core::id::{FrontendId, Incarnation, WorkerId};
use crate::core::op::Page;

fn pairs(list: &[(&str, &str)]) -> Vec<(String, String)> {
    list.iter().map(|(name, text)| ((*name).to_owned(), (*text).to_owned())).collect()
}

fn row(id: &str, cap: Option<u64>, closed: &str, inflight: u64) -> WorkerRow {
    WorkerRow {
        worker: WorkerId::parse(id).unwrap(),
        incarnation: Incarnation::parse("5-a").unwrap(),
        cap,
        closed: closed.into(),
        url: format!("http://{id}:1"),
        inflight,
    }
}

/// Busy w1 (engine), free w2 (stale signal), full w3, draining w4.
fn raw() -> Raw {
    let hash = |ms: &str| {
        pairs(&[
            ("data_parallel_start_rank", "0"),
            ("data_parallel_size", "1"),
            ("0.kv_total_blocks", "100"),
            ("0.active_decode_blocks", "90"),
            ("0.active_decode_blocks_ms", ms),
            ("engine_request_limit", "4"),
            ("request_queue_limit", "2"),
        ])
    };
    Raw {
        page: Page {
            cursor: "0".into(),
            now_ms: 100_000,
            stats: pairs(&[
                ("revision", "77"),
                ("epoch", "1-e"),
                ("inflight_total", "9"),
                ("admitted", "20"),
                ("released", "11"),
                ("refused:at_capacity", "5"),
                ("drain_rate", "3.250000"),
            ]),
            applied: pairs(&[
                ("active_decode_blocks_threshold", "0.85"),
                ("active_prefill_tokens_threshold_frac", "2"),
                ("router_mode", "kv"),
                ("config_version", "3"),
                ("error:max_inflight", "many"),
            ]),
            frontends: vec![(FrontendId::parse("f-1").unwrap(), 108_000)],
            workers: vec![
                row("w1", Some(6), "b", 1),
                row("w2", Some(6), "", 2),
                row("w3", Some(6), "", 6),
                row("w4", None, "d", 0),
            ],
        },
        config: pairs(&[
            ("active_decode_blocks_threshold", "0.9"),
            ("router_mode", "kv"),
            ("max_inflight", "many"),
            ("x", "y"),
        ])
        .into_iter()
        .collect(),
        seq: pairs(&[("f-1", "1-e|5|9")]).into_iter().collect(),
        workers: [("w1", "99700"), ("w2", "90000")]
            .map(|(id, ms)| (WorkerId::parse(id).unwrap(), hash(ms).into_iter().collect()))
            .into(),
        alive_until: [("w1".to_owned(), 104_700)].into(),
        eligible: None,
    }
}

fn shown() -> ModelView {
    view(&ModelName::parse("llama").unwrap(), &raw())
}

#[test]
fn a_busy_worker_says_why() {
    let view = shown();
    let busy = view.workers[0].ranks[0].busy.unwrap();
    assert_eq!((busy.check, busy.source, busy.value, busy.of), ("decode", "active_decode_blocks", 90, Some(100)));
    assert_eq!((busy.threshold, busy.age_ms), (0.85, 300));
    assert_eq!(view.workers[1].ranks[0].busy, None, "a stale signal does not count");
    assert!(!view.workers[1].ranks[0].signals["active_decode_blocks"].fresh);
}

#[test]
fn sums_states_and_counters() {
    let view = shown();
    assert_eq!(
        view.workers.iter().map(|worker| worker.state).collect::<Vec<_>>(),
        ["busy", "open", "full", "draining"]
    );
    assert_eq!(view.summary, Summary { workers: 4, eligible: 1, busy: 1, full: 1, draining: 1, ..Summary::default() });
    assert_eq!(view.counters.places, Some(18), "the draining one takes nothing");
    assert_eq!(view.counters.refused, [("at_capacity".to_owned(), 5)].into());
    assert_eq!((view.counters.drain_per_s, view.revision), (3.25, Some(77)));
    assert_eq!(view.frontends[0].leases, Some(9));
    assert!(view.frontends[0].reconciled);
}

#[test]
fn configuration_is_shown_with_what_is_refused_and_pending() {
    let view = shown();
    assert_eq!(view.in_force["active_decode_blocks_threshold"], 0.85);
    assert_eq!(view.in_force["router_mode"], "kv");
    assert_eq!(view.in_force["max_inflight"], Value::Null);
    assert_eq!(view.refused_values, [("max_inflight".to_owned(), "many".to_owned())].into());
    let pending: Vec<&str> = view.pending.keys().map(String::as_str).collect();
    assert_eq!(
        pending,
        ["active_decode_blocks_threshold", "max_inflight"],
        "fields that are none of ours are left out"
    );
    let missing = view.missing.join("\n");
    assert!(
        missing.contains("active_prefill_tokens_threshold_frac is set, but no worker has a fresh figure"),
        "{missing}"
    );
    assert!(missing.contains("max_num_batched_tokens"), "{missing}");
    assert!(!missing.contains("decode"), "{missing}");
}

#[test]
fn the_page_for_people_has_it_all() {
    let view = super::super::View {
        namespace: "tidegate".into(),
        redis: "redis://h:1/0".into(),
        warnings: vec!["noeviction".into()],
        models: vec![shown()],
    };
    let page = super::super::text::text(&view);
    for part in [
        "namespace tidegate at redis://h:1/0",
        "WARNING     noeviction",
        "model llama   revision 77   config version 3",
        "9 of 18 places   admitted 20   released 11   drain 3.2/s",
        "active_decode_blocks_threshold 0.85, active_prefill_tokens_threshold_frac 2.0, router_mode kv",
        "REFUSED     max_inflight = \"many\"",
        "pending     active_decode_blocks_threshold = \"0.9\"",
        "f-1 (9 leases)",
        "w1 rank 0: 90 of 100 KV blocks > 0.85 (active_decode_blocks, said by the engine 0.3 s ago)",
    ] {
        assert!(page.contains(part), "{part:?} is not in\n{page}");
    }
    let json = serde_json::to_value(&view).unwrap();
    assert_eq!(json["models"][0]["workers"][0]["ranks"][0]["busy"]["value"], 90);
}
