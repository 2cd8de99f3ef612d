//! vLLM's metrics page, out of the engine's own numbers.

use std::fmt::Write;

use super::model::{Figures, Limits};

/// The page, in the text form of Prometheus; one series per rank, as vLLM labels them (`engine`).
pub(super) fn render(model: &str, limits: &Limits, ranks: &[Figures]) -> String {
    let model = model.replace('\\', "\\\\").replace('"', "\\\"");
    let mut page = String::new();
    let mut family = |name: &str, kind: &str, help: &str, series: &dyn Fn(&Figures) -> Vec<(String, f64)>| {
        let _ = writeln!(page, "# HELP vllm:{name} {help}\n# TYPE vllm:{name} {kind}");
        for (rank, figures) in ranks.iter().enumerate() {
            for (labels, value) in series(figures) {
                let _ = writeln!(page, "vllm:{name}{{engine=\"{rank}\",model_name=\"{model}\"{labels}}} {value:?}");
            }
        }
    };
    let one = |value: u64| vec![(String::new(), value as f64)];
    family("num_requests_running", "gauge", "requests in execution batches", &|f| one(f.running));
    family("num_requests_waiting", "gauge", "requests waiting for the scheduler", &|f| one(f.waiting));
    family("num_requests_waiting_by_reason", "gauge", "waiting requests split by cause", &|f| {
        let label = |reason| format!(",reason=\"{reason}\"");
        vec![(label("capacity"), f.waiting as f64), (label("deferred"), 0.0)]
    });
    family("kv_cache_usage_perc", "gauge", "share of KV blocks in use, 0 to 1", &|f| {
        vec![(String::new(), f.used_blocks as f64 / f.total_blocks.max(1) as f64)]
    });
    family("num_preemptions_total", "counter", "preemptions so far", &|f| one(f.preemptions));
    family("prompt_tokens_total", "counter", "prefill tokens processed", &|f| one(f.prompt_tokens));
    family("generation_tokens_total", "counter", "tokens generated", &|f| one(f.generated_tokens));
    family("request_success_total", "counter", "finished requests", &|f| {
        let label = |reason| format!(",finished_reason=\"{reason}\"");
        let [stop, length] = f.finished;
        vec![(label("stop"), stop as f64), (label("length"), length as f64)]
    });
    let name = "vllm:cache_config_info";
    let _ = writeln!(page, "# HELP {name} KV cache settings as labels, value always 1\n# TYPE {name} gauge");
    for (rank, figures) in ranks.iter().enumerate() {
        let (size, blocks) = (limits.kv_block_size, figures.total_blocks);
        let _ = writeln!(page, "{name}{{block_size=\"{size}\",engine=\"{rank}\",num_gpu_blocks=\"{blocks}\"}} 1.0");
    }
    page
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_line_can_be_read_and_says_what_the_rank_says() {
        let limits = Limits {
            kv_total_blocks: 200,
            kv_block_size: 16,
            max_num_seqs: 1,
            max_num_batched_tokens: 1,
            prefill_tokens_per_s: 1.0,
            decode_tokens_per_s: 1.0,
            data_parallel_size: 2,
        };
        let busy = Figures { used_blocks: 50, total_blocks: 200, running: 3, finished: [1, 2], ..Figures::default() };
        let idle = Figures { total_blocks: 200, ..Figures::default() };
        let page = render("a\"b", &limits, &[busy, idle]);
        let values = |name: &str| -> Vec<f64> {
            crate::metrics::text::parse(&page, |series| series == name).iter().map(|series| series.value).collect()
        };
        assert_eq!(values("vllm:kv_cache_usage_perc"), [0.25, 0.0]);
        assert_eq!(values("vllm:num_requests_running"), [3.0, 0.0]);
        assert_eq!(values("vllm:request_success_total"), [1.0, 2.0, 0.0, 0.0]);
        let infos = crate::metrics::text::parse(&page, |series| series == "vllm:cache_config_info");
        assert_eq!(infos[0].label("num_gpu_blocks"), Some("200"));
    }
}
