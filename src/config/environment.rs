//! The layer of the environment: `TIDEGATE_<KEY>`, and the names that the reference system uses for the same.

use std::collections::BTreeMap;
use std::ffi::OsString;

use config::{Map, Value};

use super::{Schema, SettingsError, VARIABLE, text_value};

const PREFIX: &str = "TIDEGATE_";

/// Variables of the reference system for settings of ours (design section 8). Ours win over them.
const REFERENCE: [(&str, &str); 9] = [
    ("DYN_ACTIVE_DECODE_BLOCKS_THRESHOLD", "active_decode_blocks_threshold"),
    ("DYN_ACTIVE_PREFILL_TOKENS_THRESHOLD", "active_prefill_tokens_threshold"),
    ("DYN_ACTIVE_PREFILL_TOKENS_THRESHOLD_FRAC", "active_prefill_tokens_threshold_frac"),
    ("DYN_ROUTER_MODE", "router_mode"),
    ("DYN_ROUTER_TRACK_OUTPUT_BLOCKS", "router_track_output_blocks"),
    ("DYN_ROUTER_TRACK_ACTIVE_BLOCKS", "router_track_active_blocks"),
    ("DYN_ENGINE_REQUEST_LIMIT", "engine_request_limit"),
    ("DYN_MIGRATION_LIMIT", "migration_limit"),
    ("DYN_ADMISSION_CONTROL", "admission_control"),
];

/// Variables of the reference system that have no flag.
pub const QUEUE_LIMIT: &str = "DYN_DYNAMO_REQUEST_QUEUE_LIMIT";
/// Status of an overload (design section 5).
pub const OVERLOAD_STATUS: &str = "DYN_HTTP_OVERLOAD_STATUS_CODE";
/// Removes `/busy_threshold` (design section 5).
pub const DISABLE_ADMIN: &str = "DYN_DISABLE_FRONTEND_ADMIN_API";
/// Log filter, if neither `--log` nor `TIDEGATE_LOG` is given.
pub const RUST_LOG: &str = "RUST_LOG";
const WITHOUT_FLAG: [&str; 4] = [QUEUE_LIMIT, OVERLOAD_STATUS, DISABLE_ADMIN, RUST_LOG];

/// `TIDEGATE_` names that are no settings: the settings file, the server that demo and tests start, the tests' Redis.
const OTHER: [&str; 3] = ["CONFIG", "REDIS_SERVER", "TEST_REDIS_URL"];

/// The variable of a setting.
pub(super) fn name(key: &str) -> String {
    format!("{PREFIX}{}", key.to_uppercase())
}

/// The settings, the variables without flag, and warnings.
type Found = (Map<String, Value>, BTreeMap<&'static str, String>, Vec<String>);

/// Reads the environment for the command that runs.
pub(super) fn layer(environment: &[(OsString, OsString)], schema: &Schema) -> Result<Found, SettingsError> {
    let (mut values, mut others, mut warnings) = (Map::new(), BTreeMap::new(), Vec::new());
    for (variable, key) in REFERENCE {
        let overruled = environment.iter().any(|(other, _)| *other == *name(key));
        let given = environment.iter().find(|(other, _)| other == variable);
        if let (true, Some((_, text))) = (schema.own(key) && !overruled, given) {
            values.insert(key.to_owned(), text_value(&utf8(key, variable, text)?, &origin(variable)));
        }
    }
    for variable in WITHOUT_FLAG {
        if let Some((_, text)) = environment.iter().find(|(other, _)| other == variable) {
            others.insert(variable, text.to_string_lossy().into_owned());
        }
    }
    for (variable, text) in environment {
        let Some(variable) = variable.to_str() else { continue };
        let Some(rest) = variable.strip_prefix(PREFIX) else { continue };
        let key = rest.to_lowercase();
        if rest == rest.to_uppercase() && schema.own(&key) {
            let value = text_value(&utf8(&key, variable, text)?, &origin(variable));
            values.insert(key, value);
        } else if !(rest == rest.to_uppercase() && schema.anybodys(&key) || OTHER.contains(&rest) || injected(rest)) {
            warnings.push(format!("the environment has {variable}, which is no setting of tidegate; it is ignored"));
        }
    }
    Ok((values, others, warnings))
}

fn utf8(key: &str, variable: &str, text: &OsString) -> Result<String, SettingsError> {
    text.to_str().map(str::to_owned).ok_or_else(|| SettingsError::Value {
        key: key.to_owned(),
        value: text.to_string_lossy().into_owned(),
        reason: "is not UTF-8".into(),
        origin: origin(variable),
    })
}

fn origin(variable: &str) -> String {
    format!("{VARIABLE}{variable}")
}

/// What Kubernetes injects for a service whose name begins with `tidegate`: `*_PORT`, `*_SERVICE_HOST`,
/// `*_SERVICE_PORT[_<NAME>]`, `*_PORT_<n>_TCP[_ADDR|_PORT|_PROTO]`, and the same for UDP and SCTP.
fn injected(rest: &str) -> bool {
    let rest = format!("_{rest}");
    rest.ends_with("_PORT")
        || rest.contains("_SERVICE_HOST")
        || rest.contains("_SERVICE_PORT")
        || rest.split_once("_PORT_").is_some_and(|(_, tail)| {
            let (number, protocol) = tail.split_once('_').unwrap_or((tail, ""));
            number.bytes().all(|b| b.is_ascii_digit())
                && ["TCP", "UDP", "SCTP"].iter().any(|known| protocol.starts_with(known))
        })
}

#[cfg(test)]
mod tests {
    use super::injected;

    #[test]
    fn what_kubernetes_injects_is_known() {
        for name in [
            "PORT",
            "SERVICE_HOST",
            "SERVICE_PORT",
            "SERVICE_PORT_HTTP",
            "PORT_8000_TCP",
            "PORT_8000_TCP_ADDR",
            "PORT_53_UDP_PROTO",
            "FRONTEND_PORT",
            "FRONTEND_SERVICE_HOST",
            "FRONTEND_PORT_8000_TCP_PORT",
        ] {
            assert!(injected(name), "{name}");
        }
        for name in ["REDIS_URI", "PORT_X", "HTTP_LISTEN", "SUPPORT", "SERVICE", "PORT_80"] {
            assert!(!injected(name), "{name}");
        }
    }
}
