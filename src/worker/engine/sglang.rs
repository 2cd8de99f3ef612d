//! SGLang: `/v1/loads` where there is one (it alone tells the prompt tokens that wait), else `/metrics`.

use serde::Deserialize;

use super::Facts;
use crate::metrics::text::parse;

#[derive(Deserialize)]
struct Loads {
    loads: Vec<Load>,
}

#[derive(Deserialize)]
struct Load {
    dp_rank: Option<u32>,
    num_running_reqs: Option<f64>,
    num_waiting_reqs: Option<f64>,
    num_waiting_uncached_tokens: Option<f64>,
    num_used_tokens: Option<f64>,
    max_total_num_tokens: Option<f64>,
    token_usage: Option<f64>,
}

pub(super) fn read_loads(page: &str) -> Option<Vec<Facts>> {
    let Loads { loads } = serde_json::from_str(page).ok()?;
    let several = loads.len() > 1;
    let facts = loads.into_iter().map(|load| Facts {
        rank: load.dp_rank.filter(|_| several),
        usage: load.token_usage,
        cache_tokens: load.max_total_num_tokens,
        used_tokens: load.num_used_tokens,
        prefill_tokens: load.num_waiting_uncached_tokens,
        max_batched_tokens: None,
        running: load.num_running_reqs,
        waiting: load.num_waiting_reqs,
    });
    Some(facts.collect()).filter(|all: &Vec<Facts>| !all.is_empty())
}

const NAMES: [&str; 5] = [
    "sglang:token_usage",
    "sglang:kv_used_tokens",
    "sglang:max_total_num_tokens",
    "sglang:num_running_reqs",
    "sglang:num_queue_reqs",
];

pub(super) fn read(page: &str) -> Option<Vec<Facts>> {
    let mut all: Vec<Facts> = Vec::new();
    for series in parse(page, |name| NAMES.contains(&name)) {
        // Beside the sum there may be a series per priority.
        if series.label("priority").is_some_and(|priority| !priority.is_empty()) {
            continue;
        }
        let rank = series.label("dp_rank").and_then(|rank| rank.parse().ok());
        let at = all.iter().position(|facts| facts.rank == rank).unwrap_or(all.len());
        if at == all.len() {
            all.push(Facts { rank, ..Facts::default() });
        }
        let Some(facts) = all.get_mut(at) else { continue };
        let field = match series.name {
            "sglang:token_usage" => &mut facts.usage,
            "sglang:kv_used_tokens" => &mut facts.used_tokens,
            "sglang:max_total_num_tokens" => &mut facts.cache_tokens,
            "sglang:num_running_reqs" => &mut facts.running,
            _ => &mut facts.waiting,
        };
        // Tensor-parallel ranks of one engine say the same; if not, the fullest counts.
        *field = Some(field.map_or(series.value, |value| value.max(series.value)));
    }
    (!all.is_empty()).then_some(all)
}
