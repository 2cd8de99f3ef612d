//! vLLM's `/metrics`. It tells the share of KV blocks in use and, as labels, how many there are; prompt tokens in
//! progress it does not tell.

use super::Facts;
use crate::metrics::text::{Series, parse};

const NAMES: [&str; 5] = [
    "vllm:kv_cache_usage_perc",
    // Before 0.10.
    "vllm:gpu_cache_usage_perc",
    "vllm:cache_config_info",
    "vllm:num_requests_running",
    "vllm:num_requests_waiting",
];

pub(super) fn read(page: &str) -> Option<Vec<Facts>> {
    let mut all: Vec<Facts> = Vec::new();
    for series in parse(page, |name| NAMES.contains(&name)) {
        let rank = series.label("engine").and_then(|engine| engine.parse().ok());
        let at = all.iter().position(|facts| facts.rank == rank).unwrap_or(all.len());
        if at == all.len() {
            all.push(Facts { rank, ..Facts::default() });
        }
        let Some(facts) = all.get_mut(at) else { continue };
        match series.name {
            "vllm:kv_cache_usage_perc" => facts.usage = Some(series.value),
            "vllm:gpu_cache_usage_perc" => facts.usage = facts.usage.or(Some(series.value)),
            "vllm:num_requests_running" => facts.running = Some(series.value),
            "vllm:num_requests_waiting" => facts.waiting = Some(series.value),
            _ => facts.cache_tokens = cache_tokens(&series),
        }
    }
    (!all.is_empty()).then_some(all)
}

/// Blocks times their size. Where the front process of a data-parallel engine does not know its blocks (`None`), newer
/// releases still name the size of the cache.
fn cache_tokens(info: &Series<'_>) -> Option<f64> {
    let number = |label| info.label(label).and_then(|text| text.parse::<f64>().ok()).filter(|n| *n > 0.0);
    let blocks = number("num_gpu_blocks").or_else(|| number("num_gpu_blocks_override"));
    let by_blocks = blocks.and_then(|blocks| Some(blocks * number("block_size")?));
    by_blocks.or_else(|| number("kv_cache_size_tokens"))
}
