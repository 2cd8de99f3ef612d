//! The settings of a sidecar, as resolved from flags, environment and file.

use std::net::SocketAddr;
use std::time::Duration;

use crate::config::secret::Secret;
use crate::core::id::{ModelName, WorkerId};
use crate::http::base_url::{BaseUrl, BaseUrlError};

/// All flags of `tidegate worker` but those of the store (design section 8). [`Settings::check`] has the ranges.
#[derive(Debug, Clone)]
pub struct Settings {
    /// `--model`.
    pub model: ModelName,
    /// `--worker-id`: unique per model.
    pub worker: WorkerId,
    /// `--listen`; port 0 takes a free one.
    pub listen: SocketAddr,
    /// `--engine-url`.
    pub engine_url: BaseUrl,
    /// `--advertise-url`: where frontends reach this sidecar; none: the listening address.
    pub advertise_url: Option<BaseUrl>,
    /// `--engine-request-limit` (N), 1 or more; none: no cap.
    pub engine_request_limit: Option<u64>,
    /// `--request-queue-limit` (Q), of no meaning without N.
    pub request_queue_limit: u64,
    /// `--queue-timeout-ms`; none: a queued request waits as long as its client does.
    pub queue_timeout: Option<Duration>,
    /// `--data-parallel-size`, 1 to 1,024.
    pub data_parallel_size: u32,
    /// `--data-parallel-start-rank`.
    pub data_parallel_start_rank: u32,
    /// `--kv-total-blocks` of every rank; wins over what the engine's page says.
    pub kv_total_blocks: Option<u64>,
    /// `--max-num-batched-tokens` of every rank; wins over what the engine's page says.
    pub max_num_batched_tokens: Option<u64>,
    /// `--kv-block-size` in tokens, 1 or more.
    pub kv_block_size: u64,
    /// `--engine-metrics`.
    pub engine_metrics: EngineMetrics,
    /// `--engine-health-path`.
    pub engine_health_path: String,
    /// `--report-interval-ms`, 10 ms to 2 s.
    pub report_interval: Duration,
    /// `--worker-ttl-ms`, 5 s or more (recovery protocol, H23).
    pub worker_ttl: Duration,
    /// `--drain-seconds`: how long running requests may still take after SIGTERM.
    pub drain: Duration,
    /// The content of `--admin-token-file`: lets peers beyond loopback post to `/load` and `/limits`.
    pub admin_token: Option<Secret>,
}

/// Which engine's metrics page is read (`--engine-metrics`).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum EngineMetrics {
    /// `vllm`.
    Vllm,
    /// `sglang`.
    Sglang,
    /// `trtllm`: `trtllm-serve`, or Triton with the TensorRT-LLM backend.
    Trtllm,
    /// `none`.
    #[default]
    None,
}

impl std::str::FromStr for EngineMetrics {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        match text {
            "vllm" => Ok(Self::Vllm),
            "sglang" => Ok(Self::Sglang),
            "trtllm" => Ok(Self::Trtllm),
            "none" => Ok(Self::None),
            _ => Err("must be vllm, sglang, trtllm or none".into()),
        }
    }
}

/// A setting outside its range: the flag without its dashes, the value and what it must be.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{flag} = {value}: {must}")]
pub struct SettingError {
    /// The flag without its dashes.
    pub flag: &'static str,
    /// The value as text.
    pub value: String,
    /// What it must be.
    pub must: String,
}

/// Largest figure that every Redis and Lua keeps exact (design section 3.1).
pub const MAX_FIGURE: u64 = (1 << 53) - 1;

impl Settings {
    /// The settings with all defaults of design section 8.
    #[must_use]
    pub fn new(model: ModelName, worker: WorkerId, listen: SocketAddr, engine_url: BaseUrl) -> Self {
        Self {
            model,
            worker,
            listen,
            engine_url,
            advertise_url: None,
            engine_request_limit: None,
            request_queue_limit: 16,
            queue_timeout: None,
            data_parallel_size: 1,
            data_parallel_start_rank: 0,
            kv_total_blocks: None,
            max_num_batched_tokens: None,
            kv_block_size: 16,
            engine_metrics: EngineMetrics::None,
            engine_health_path: "/health".into(),
            report_interval: Duration::from_millis(500),
            worker_ttl: Duration::from_secs(5),
            drain: Duration::from_secs(30),
            admin_token: None,
        }
    }

    /// Checks every range.
    ///
    /// # Errors
    /// The first setting that is outside its range.
    pub fn check(&self) -> Result<(), SettingError> {
        let within = |flag, value: u64, low: u64, high: u64| {
            let must = || format!("must be {low} to {high}");
            if (low..=high).contains(&value) { Ok(()) } else { Err(bad(flag, value, must())) }
        };
        let ms = |d: Duration| u64::try_from(d.as_millis()).unwrap_or(u64::MAX);
        if let Some(n) = self.engine_request_limit {
            within("engine-request-limit", n, 1, MAX_LIMIT)?;
        }
        within("request-queue-limit", self.request_queue_limit, 0, MAX_LIMIT)?;
        within("data-parallel-size", self.data_parallel_size.into(), 1, 1_024)?;
        within("data-parallel-start-rank", self.data_parallel_start_rank.into(), 0, 65_535)?;
        within("kv-total-blocks", self.kv_total_blocks.unwrap_or(0), 0, MAX_FIGURE)?;
        within("max-num-batched-tokens", self.max_num_batched_tokens.unwrap_or(0), 0, MAX_FIGURE)?;
        within("kv-block-size", self.kv_block_size, 1, 1_000_000)?;
        within("report-interval-ms", ms(self.report_interval), 10, 2_000)?;
        within("worker-ttl-ms", ms(self.worker_ttl), 5_000, 3_600_000)?;
        let path = &self.engine_health_path;
        if !path.starts_with('/') || !path.bytes().all(|b| b.is_ascii_graphic()) {
            return Err(bad("engine-health-path", path, "must begin with a slash and hold no spaces".into()));
        }
        // Port 0 takes a free one: any port stands for it here.
        let bound = SocketAddr::new(self.listen.ip(), self.listen.port().max(1));
        self.advertised(bound).map(|_| ())
    }

    /// Where frontends reach a sidecar that listens on `bound`.
    ///
    /// # Errors
    /// A listener on all addresses needs `--advertise-url`.
    pub fn advertised(&self, bound: SocketAddr) -> Result<BaseUrl, SettingError> {
        let explain = |e: BaseUrlError| e.to_string();
        match &self.advertise_url {
            Some(url) => BaseUrl::parse_reachable(url.as_str()).map_err(|e| bad("advertise-url", url, explain(e))),
            None => BaseUrl::of_listener(bound)
                .map_err(|e| bad("listen", bound, format!("{}: name it with --advertise-url", explain(e)))),
        }
    }
}

/// Most slots or queue places: N + Q stays exact everywhere.
pub const MAX_LIMIT: u64 = 1_000_000_000;

/// Reads `DYN_DYNAMO_REQUEST_QUEUE_LIMIT`, which is heeded only if N is set: 2 or more, as in the reference (design
/// section 3.5).
///
/// # Errors
/// A smaller or unreadable value stops the start.
pub fn queue_limit_variable(text: &str) -> Result<u64, SettingError> {
    match text.parse::<u64>() {
        Ok(q) if (2..=MAX_LIMIT).contains(&q) => Ok(q),
        _ => Err(bad("DYN_DYNAMO_REQUEST_QUEUE_LIMIT", text, format!("must be an integer, 2 to {MAX_LIMIT}"))),
    }
}

fn bad(flag: &'static str, value: impl ToString, must: String) -> SettingError {
    SettingError { flag, value: value.to_string(), must }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn settings() -> Settings {
        Settings::new(
            ModelName::parse("m").unwrap(),
            WorkerId::parse("w").unwrap(),
            "127.0.0.1:0".parse().unwrap(),
            BaseUrl::parse("http://127.0.0.1:1").unwrap(),
        )
    }

    #[test]
    fn defaults_are_in_range() {
        assert_eq!(settings().check(), Ok(()));
    }

    #[test]
    fn what_is_out_of_range_is_named() {
        type Change = fn(&mut Settings);
        let cases: [(&str, Change); 8] = [
            ("engine-request-limit", |s| s.engine_request_limit = Some(0)),
            ("request-queue-limit", |s| s.request_queue_limit = u64::MAX),
            ("data-parallel-size", |s| s.data_parallel_size = 0),
            ("kv-total-blocks", |s| s.kv_total_blocks = Some(1 << 53)),
            ("kv-block-size", |s| s.kv_block_size = 0),
            ("report-interval-ms", |s| s.report_interval = Duration::from_millis(9)),
            ("worker-ttl-ms", |s| s.worker_ttl = Duration::from_millis(4_999)),
            ("engine-health-path", |s| s.engine_health_path = "health".into()),
        ];
        for (flag, change) in cases {
            let mut s = settings();
            change(&mut s);
            assert_eq!(s.check().expect_err(flag).flag, flag);
        }
    }

    #[test]
    fn a_listener_on_all_addresses_must_be_told_its_name() {
        let mut s = settings();
        let all = "0.0.0.0:9001".parse().unwrap();
        assert_eq!(s.advertised(all).expect_err("unspecified").flag, "listen");
        s.advertise_url = Some(BaseUrl::parse("http://w1:9001/").unwrap());
        assert_eq!(s.advertised(all).unwrap().as_str(), "http://w1:9001");
        s.advertise_url = None;
        assert_eq!(s.advertised("[::1]:9001".parse().unwrap()).unwrap().as_str(), "http://[::1]:9001");
    }

    #[test]
    fn the_reference_variable_is_2_or_more() {
        assert_eq!(queue_limit_variable("2"), Ok(2));
        for text in ["0", "1", "-3", "", "16.0", "many"] {
            let error = queue_limit_variable(text).expect_err(text).to_string();
            assert!(error.contains("DYN_DYNAMO_REQUEST_QUEUE_LIMIT") && error.contains(text), "{error}");
        }
    }
}
