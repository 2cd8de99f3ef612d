//! The settings of `tidegate mock-engine`.

use crate::config::{Resolved, SettingsError, parse};
use crate::core::id::ModelName;
use crate::core::thresholds::MAX_INTEGER;
use crate::mock_engine::Settings;
use crate::mock_engine::model::Limits;

/// Reads all of them.
pub(super) fn mock_engine(given: &Resolved) -> Result<Settings, SettingsError> {
    let count = |key: &str| given.required(key, parse::whole(1, MAX_INTEGER));
    Ok(Settings {
        listen: given.required("listen", parse::listen)?,
        model: given.required("model", parse::name(ModelName::parse))?,
        limits: Limits {
            kv_total_blocks: count("kv_total_blocks")?,
            kv_block_size: count("kv_block_size")?,
            max_num_seqs: count("max_num_seqs")?,
            max_num_batched_tokens: count("max_num_batched_tokens")?,
            prefill_tokens_per_s: given.required("prefill_tokens_per_s", parse::rate)?,
            decode_tokens_per_s: given.required("decode_tokens_per_s", parse::rate)?,
            data_parallel_size: given.required("data_parallel_size", parse::small(1, 1_024))?,
        },
    })
}
