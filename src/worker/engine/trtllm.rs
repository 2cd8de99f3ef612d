//! TensorRT-LLM: the Prometheus page or the JSON statistics of `trtllm-serve`, or Triton's page. None of them tells
//! ranks apart.

use serde::Deserialize;

use super::Facts;
use crate::metrics::text::{Series, parse};

pub(super) fn read(page: &str) -> Option<Vec<Facts>> {
    if page.trim_start().starts_with('[') { read_statistics(page) } else { read_page(page) }
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Iteration {
    num_queued_requests: Option<f64>,
    num_active_requests: Option<f64>,
    max_num_tokens_runtime: Option<f64>,
    kv_cache_stats: Option<Cache>,
    inflight_batching_stats: Option<Batch>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Cache {
    max_num_blocks: f64,
    used_num_blocks: f64,
    tokens_per_block: f64,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Batch {
    num_ctx_tokens: Option<f64>,
}

/// The last iteration counts. An idle engine answers an empty list: nothing is known then, and old figures go stale.
fn read_statistics(page: &str) -> Option<Vec<Facts>> {
    let iterations: Vec<Iteration> = serde_json::from_str(page).ok()?;
    let last = iterations.last()?;
    let cache = last.kv_cache_stats.as_ref();
    Some(vec![Facts {
        cache_tokens: cache.map(|c| c.max_num_blocks * c.tokens_per_block),
        used_tokens: cache.map(|c| c.used_num_blocks * c.tokens_per_block),
        prefill_tokens: last.inflight_batching_stats.as_ref().and_then(|b| b.num_ctx_tokens),
        max_batched_tokens: last.max_num_tokens_runtime,
        running: last.num_active_requests,
        waiting: last.num_queued_requests,
        ..Facts::default()
    }])
}

fn read_page(page: &str) -> Option<Vec<Facts>> {
    let series = parse(page, |name| name.starts_with("trtllm_") || name.starts_with("nv_trt_llm_"));
    let named = |name: &str| series.iter().find(|s| s.name == name).map(|s| s.value);
    let triton = |name: &str, label: &str, value: &str| {
        let fits = |s: &&Series<'_>| s.name == name && s.label(label) == Some(value);
        series.iter().find(fits).map(|s| s.value)
    };
    let cache = |value| triton("nv_trt_llm_kv_cache_block_metrics", "kv_cache_block_type", value);
    let requests = |value| triton("nv_trt_llm_request_metrics", "request_type", value);
    let batch = |value| triton("nv_trt_llm_inflight_batcher_metrics", "inflight_batcher_specific_metric", value);
    let per_block = named("trtllm_kv_cache_tokens_per_block").or_else(|| cache("tokens_per"));
    let tokens = |blocks: Option<f64>| Some(blocks? * per_block?);
    let facts = Facts {
        usage: named("trtllm_kv_cache_utilization").or_else(|| cache("fraction")),
        cache_tokens: tokens(named("trtllm_kv_cache_max_blocks").or_else(|| cache("max"))),
        used_tokens: tokens(named("trtllm_kv_cache_used_blocks").or_else(|| cache("used"))),
        prefill_tokens: named("trtllm_total_context_tokens").or_else(|| batch("total_context_tokens")),
        max_batched_tokens: named("trtllm_max_num_tokens_runtime"),
        running: named("trtllm_num_requests_running").or_else(|| requests("active")),
        waiting: named("trtllm_num_requests_waiting").or_else(|| requests("waiting")),
        rank: None,
    };
    (facts != Facts::default()).then(|| vec![facts])
}
