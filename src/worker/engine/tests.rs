//! Pages with the names and labels of real engines, and made-up figures.

use super::*;
use crate::core::id::{ModelName, WorkerId};
use crate::http::base_url::BaseUrl;
use FigureKind::{ActiveDecodeBlocks, ActivePrefillTokens, KvTotalBlocks, MaxNumBatchedTokens};

fn settings(size: u32, start: u32) -> Settings {
    let mut settings = Settings::new(
        ModelName::parse("m").unwrap(),
        WorkerId::parse("w").unwrap(),
        "127.0.0.1:0".parse().unwrap(),
        BaseUrl::parse("http://127.0.0.1:1").unwrap(),
    );
    settings.data_parallel_size = size;
    settings.data_parallel_start_rank = start;
    settings
}

/// Reads a page with every source of the engine, the first that fits.
fn scrape(engine: EngineMetrics, page: &str, settings: &Settings) -> Option<Scraped> {
    let facts = sources(engine).iter().find_map(|source| (source.read)(page))?;
    Some(figures(&facts, settings))
}

fn said(scraped: &Scraped) -> Vec<(u32, FigureKind, u64)> {
    scraped.figures.iter().map(|f| (f.rank, f.kind, f.value)).collect()
}

const VLLM: &str = concat!(
    "# TYPE vllm:num_requests_running gauge\n",
    "vllm:num_requests_running{engine=\"0\",model_name=\"m\"} 7.0\n",
    "vllm:num_requests_running{engine=\"1\",model_name=\"m\"} 1.0\n",
    "vllm:num_requests_waiting{engine=\"0\",model_name=\"m\"} 5.0\n",
    "vllm:num_requests_waiting_by_reason{engine=\"0\",model_name=\"m\",reason=\"capacity\"} 4.0\n",
    "vllm:kv_cache_usage_perc{engine=\"0\",model_name=\"m\"} 0.75\n",
    "vllm:kv_cache_usage_perc{engine=\"1\",model_name=\"m\"} 0.1\n",
    "vllm:cache_config_info{block_size=\"16\",engine=\"0\",kv_cache_dtype_skip_layers=\"[]\",num_gpu_blocks=\"4000\"} 1.0\n",
    "vllm:cache_config_info{block_size=\"16\",engine=\"1\",kv_cache_dtype_skip_layers=\"[]\",num_gpu_blocks=\"2000\"} 1.0\n",
);

#[test]
fn vllm_ranks_have_their_own_blocks() {
    let wanted = |a, b| {
        vec![
            (a, ActiveDecodeBlocks, 3_000),
            (a, KvTotalBlocks, 4_000),
            (b, ActiveDecodeBlocks, 200),
            (b, KvTotalBlocks, 2_000),
        ]
    };
    let scraped = scrape(EngineMetrics::Vllm, VLLM, &settings(2, 0)).unwrap();
    assert_eq!(said(&scraped), wanted(0, 1));
    assert_eq!((scraped.running, scraped.waiting), (Some(8.0), Some(5.0)));
    // Counted from 0 although the declared ranks begin at 4.
    assert_eq!(said(&scrape(EngineMetrics::Vllm, VLLM, &settings(2, 4)).unwrap()), wanted(4, 5));
    // A rank that was not declared is left out.
    let one = scrape(EngineMetrics::Vllm, VLLM, &settings(1, 0)).unwrap();
    assert_eq!(said(&one), wanted(0, 1)[..2]);
}

#[test]
fn vllm_old_names_and_no_engine_label() {
    let page = concat!(
        "vllm:gpu_cache_usage_perc{model_name=\"m\"} 0.5\n",
        "vllm:cache_config_info{block_size=\"32\",num_gpu_blocks=\"100\"} 1.0\n",
    );
    // Blocks of 32 tokens are told as blocks of 16.
    let wanted = [(0, ActiveDecodeBlocks, 100), (0, KvTotalBlocks, 200)];
    assert_eq!(said(&scrape(EngineMetrics::Vllm, page, &settings(1, 0)).unwrap()), wanted);
}

#[test]
fn vllm_that_does_not_know_its_blocks() {
    let page = |more: &str| {
        format!(
            "vllm:kv_cache_usage_perc{{engine=\"0\"}} 0.5\n\
             vllm:cache_config_info{{block_size=\"16\",engine=\"0\",num_gpu_blocks=\"None\"{more}}} 1.0\n"
        )
    };
    let none = scrape(EngineMetrics::Vllm, &page(""), &settings(1, 0)).unwrap();
    assert_eq!(said(&none), [], "half of nobody knows what");
    let size = scrape(EngineMetrics::Vllm, &page(",kv_cache_size_tokens=\"3200\""), &settings(1, 0)).unwrap();
    assert_eq!(said(&size), [(0, ActiveDecodeBlocks, 100), (0, KvTotalBlocks, 200)]);
    let mut told = settings(1, 0);
    told.kv_total_blocks = Some(1_000);
    assert_eq!(said(&scrape(EngineMetrics::Vllm, &page(""), &told).unwrap()), [(0, ActiveDecodeBlocks, 500)]);
}

#[test]
fn sglang_page_counts_the_sum_of_priorities_and_the_fullest_tensor_rank() {
    let page = concat!(
        "sglang:token_usage{dp_rank=\"0\",tp_rank=\"0\",priority=\"\"} 0.5\n",
        "sglang:token_usage{dp_rank=\"1\",tp_rank=\"1\"} 0.25\n",
        "sglang:kv_used_tokens{dp_rank=\"0\",tp_rank=\"0\"} 16000.0\n",
        "sglang:max_total_num_tokens{dp_rank=\"0\",tp_rank=\"0\"} 32000.0\n",
        "sglang:max_total_num_tokens{dp_rank=\"1\",tp_rank=\"1\"} 32000.0\n",
        "sglang:num_queue_reqs{dp_rank=\"0\",priority=\"\",tp_rank=\"0\"} 3.0\n",
        "sglang:num_queue_reqs{dp_rank=\"0\",priority=\"0\",tp_rank=\"0\"} 2.0\n",
    );
    let scraped = scrape(EngineMetrics::Sglang, page, &settings(2, 0)).unwrap();
    let wanted = [
        (0, ActiveDecodeBlocks, 1_000),
        (0, KvTotalBlocks, 2_000),
        (1, ActiveDecodeBlocks, 500),
        (1, KvTotalBlocks, 2_000),
    ];
    assert_eq!((said(&scraped), scraped.waiting), (wanted.to_vec(), Some(3.0)));
}

#[test]
fn sglang_loads_tell_the_prompt_tokens_that_wait() {
    let page = r#"{"version":"x","loads":[{"dp_rank":0,"num_running_reqs":2,"num_waiting_reqs":1,
        "num_waiting_uncached_tokens":512,"num_used_tokens":1600,"max_total_num_tokens":3200,"token_usage":0.5}]}"#;
    let wanted = [(3, ActiveDecodeBlocks, 100), (3, ActivePrefillTokens, 512), (3, KvTotalBlocks, 200)];
    assert_eq!(said(&scrape(EngineMetrics::Sglang, page, &settings(1, 3)).unwrap()), wanted);
}

#[test]
fn trtllm_page_statistics_and_triton_say_the_same() {
    let page = concat!(
        "trtllm_kv_cache_utilization{pid=\"1\"} 0.5\ntrtllm_kv_cache_max_blocks{pid=\"1\"} 100\n",
        "trtllm_kv_cache_used_blocks{pid=\"1\"} 50\ntrtllm_kv_cache_tokens_per_block{pid=\"1\"} 32\n",
        "trtllm_max_num_tokens_runtime{pid=\"1\"} 8192\ntrtllm_total_context_tokens{pid=\"1\"} 640\n",
        "trtllm_num_requests_waiting{pid=\"1\"} 4\n",
    );
    let statistics = r#"[{"iter":1,"maxNumTokensRuntime":1},{"iter":2,"numActiveRequests":3,"numQueuedRequests":4,
        "maxNumTokensRuntime":8192,"kvCacheStats":{"maxNumBlocks":100,"freeNumBlocks":50,"usedNumBlocks":50,
        "tokensPerBlock":32},"inflightBatchingStats":{"numCtxTokens":640}}]"#;
    let triton = concat!(
        "nv_trt_llm_request_metrics{model=\"m\",request_type=\"waiting\",version=\"1\"} 4\n",
        "nv_trt_llm_kv_cache_block_metrics{kv_cache_block_type=\"fraction\",model=\"m\"} 0.5\n",
        "nv_trt_llm_kv_cache_block_metrics{kv_cache_block_type=\"tokens_per\",model=\"m\"} 32\n",
        "nv_trt_llm_kv_cache_block_metrics{kv_cache_block_type=\"used\",model=\"m\"} 50\n",
        "nv_trt_llm_kv_cache_block_metrics{kv_cache_block_type=\"max\",model=\"m\"} 100\n",
        "nv_trt_llm_inflight_batcher_metrics{inflight_batcher_specific_metric=\"total_context_tokens\"} 640\n",
    );
    let mut wanted = vec![
        (0, ActiveDecodeBlocks, 100),
        (0, ActivePrefillTokens, 640),
        (0, KvTotalBlocks, 200),
        (0, MaxNumBatchedTokens, 8_192),
    ];
    for page in [page, statistics, triton] {
        let scraped = scrape(EngineMetrics::Trtllm, page, &settings(1, 0)).unwrap();
        if page == triton {
            wanted.pop();
        }
        assert_eq!((said(&scraped), scraped.waiting), (wanted.clone(), Some(4.0)), "{page}");
    }
}

#[test]
fn a_page_without_ranks_speaks_for_all_of_them() {
    let page = concat!(
        "trtllm_kv_cache_max_blocks 100\ntrtllm_kv_cache_used_blocks 50\ntrtllm_kv_cache_tokens_per_block 16\n",
        "trtllm_total_context_tokens 640\n",
    );
    let scraped = scrape(EngineMetrics::Trtllm, page, &settings(2, 0)).unwrap();
    let rank = |r| [(r, ActiveDecodeBlocks, 25), (r, ActivePrefillTokens, 320), (r, KvTotalBlocks, 50)];
    assert_eq!(said(&scraped), [rank(0), rank(1)].concat());
}

#[test]
fn what_is_no_page_of_the_engine_is_not_taken_for_an_idle_one() {
    for engine in [EngineMetrics::Vllm, EngineMetrics::Sglang, EngineMetrics::Trtllm] {
        for page in ["", "{}", "[]", "<html>not found</html>", "http_requests_total 5\n", "{\"loads\":[]}"] {
            assert_eq!(scrape(engine, page, &settings(1, 0)), None, "{engine:?} {page}");
        }
    }
    let odd = "vllm:kv_cache_usage_perc -1\nvllm:cache_config_info{block_size=\"0\",num_gpu_blocks=\"-5\"} 1\n";
    assert_eq!(said(&scrape(EngineMetrics::Vllm, odd, &settings(1, 0)).unwrap()), []);
}
