//! What a frontend shows of the fleet: gauges that are made anew from its copy of the state whenever they are read
//! (design section 7).

use prometheus::{GaugeVec, IntGauge, IntGaugeVec, Opts, Registry};

use super::register;

/// Handles, made once per process.
#[derive(Debug, Clone)]
pub struct FleetMetrics {
    /// `model`, `worker_id`, `dp_rank`, `worker_type`.
    pub worker_decode_blocks: IntGaugeVec,
    /// The same labels.
    pub worker_prefill_tokens: IntGaugeVec,
    /// `model`: of the worker with the most.
    pub total_kv_blocks: IntGaugeVec,
    /// `model`: of the worker with the most.
    pub max_num_batched_tokens: IntGaugeVec,
    /// `model`, `state`.
    pub workers: IntGaugeVec,
    /// `model`.
    pub inflight: IntGaugeVec,
    /// `model`.
    pub frontends: IntGaugeVec,
    /// `model`, `field`; only what is set.
    pub thresholds: GaugeVec,
    /// `model`, `field`; 1: the value in `P:config` is refused, the last good one is in force.
    pub config_refused: IntGaugeVec,
    /// `model`, `check`; 1: configured, but no worker has the signal or the capacity.
    pub missing_signal: IntGaugeVec,
    /// `model`.
    pub revision: IntGaugeVec,
    /// `model`: releases per second.
    pub drain_rate: GaugeVec,
    /// `model`; 1: decided without Redis.
    pub degraded: IntGaugeVec,
    /// 1: some model's breaker is open.
    pub breaker_open: IntGauge,
    /// 1: Redis has answered, and can be used or static mode bridges the gap.
    pub ready: IntGauge,
}

impl FleetMetrics {
    /// Makes the handles and registers them.
    ///
    /// # Errors
    /// The registry has series of these names.
    pub fn new(registry: &Registry) -> Result<Self, prometheus::Error> {
        const WORKER: [&str; 4] = ["model", "worker_id", "dp_rank", "worker_type"];
        let gauges = |name: &str, help: &str, labels: &[&str]| {
            register(registry, IntGaugeVec::new(Opts::new(name, help), labels)?)
        };
        let decimals =
            |name: &str, help: &str, labels: &[&str]| register(registry, GaugeVec::new(Opts::new(name, help), labels)?);
        let gauge = |name: &str, help: &str| register(registry, IntGauge::new(name, help)?);
        Ok(Self {
            worker_decode_blocks: gauges(
                "dynamo_frontend_worker_active_decode_blocks",
                "KV blocks in use, the larger of what the engine says and the sidecar counts",
                &WORKER,
            )?,
            worker_prefill_tokens: gauges(
                "dynamo_frontend_worker_active_prefill_tokens",
                "Prompt tokens not yet prefilled, the larger of what the engine says and the sidecar counts",
                &WORKER,
            )?,
            total_kv_blocks: gauges("dynamo_frontend_model_total_kv_blocks", "KV blocks of one rank", &["model"])?,
            max_num_batched_tokens: gauges(
                "dynamo_frontend_model_max_num_batched_tokens",
                "Tokens of one engine step",
                &["model"],
            )?,
            workers: gauges(
                "tidegate_workers",
                "Workers by state: alive, free, busy, draining, engine_down, skipped, at_capacity, expired",
                &["model", "state"],
            )?,
            inflight: gauges("tidegate_inflight", "Admitted requests of all frontends", &["model"])?,
            frontends: gauges("tidegate_frontends", "Frontends that are alive", &["model"])?,
            thresholds: decimals("tidegate_threshold", "Thresholds in force", &["model", "field"])?,
            config_refused: gauges(
                "tidegate_config_refused",
                "1: the value that was written is refused, the last good one is in force",
                &["model", "field"],
            )?,
            missing_signal: gauges(
                "tidegate_missing_signal",
                "1: the check is configured, but no worker has the signal or the capacity for it",
                &["model", "check"],
            )?,
            revision: gauges("tidegate_revision", "The highest revision seen", &["model"])?,
            drain_rate: decimals("tidegate_drain_rate", "Requests that end, per second, fleet-wide", &["model"])?,
            degraded: gauges("tidegate_degraded", "1: decided without Redis, in static mode", &["model"])?,
            breaker_open: gauge("tidegate_breaker_open", "1: calls to some Redis server fail at once")?,
            ready: gauge("tidegate_ready", "1: requests can be decided on")?,
        })
    }

    /// Forgets all models and workers, before the present ones are written.
    pub fn clear(&self) {
        for gauges in [
            &self.worker_decode_blocks,
            &self.worker_prefill_tokens,
            &self.total_kv_blocks,
            &self.max_num_batched_tokens,
            &self.workers,
            &self.inflight,
            &self.frontends,
            &self.config_refused,
            &self.missing_signal,
            &self.revision,
            &self.degraded,
        ] {
            gauges.reset();
        }
        self.thresholds.reset();
        self.drain_rate.reset();
    }
}
