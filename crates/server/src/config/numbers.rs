//! The rows of the settings table that are plain numbers: each sets one field of `Limits`, which also
//! holds the defaults. The number in a row is the smallest value that makes sense.

use domain::limits::Limits;

use super::settings::Unit::{Bytes, Count, Seconds};
use super::settings::{Kind, Setting, Unit, row};

const MIB: u64 = 1024 * 1024;

/// A row whose key, variable and field all bear the same name.
macro_rules! number {
    ($field:ident, $env:literal, $unit:expr, $min:expr) => {
        number(stringify!($field), concat!("THREADKEEP_", $env), $unit, $min, |l| &mut l.$field)
    };
}

pub(super) static NUMBERS: &[Setting] = &[
    number!(replay_turn_limit, "REPLAY_TURN_LIMIT", Count, 0)
        .help("Turns of a conversation that are replayed to the assistant"),
    number!(chat_bag_zip_url_ttl_seconds, "CHAT_BAG_ZIP_URL_TTL_SECONDS", Seconds, 1)
        .help("How long the address of a conversation's zip is good"),
    number!(max_persisted_tabs, "MAX_PERSISTED_TABS", Count, 0).help("Tabs kept with a conversation"),
    number!(max_file_bytes, "MAX_FILE_BYTES", Bytes, 1).help("Largest file that may be uploaded"),
    number!(max_files_per_message, "MAX_FILES_PER_MESSAGE", Count, 0).help("Files attached to one message"),
    number!(max_bag_bytes, "MAX_BAG_BYTES", Bytes, 1).help("All files of one conversation together"),
    number!(file_grace_seconds, "FILE_GRACE_SECONDS", Seconds, 1)
        .help("Age at which unfinished uploads, and bytes that no file names, are removed"),
    number!(retention_days, "RETENTION_DAYS", Count, 0)
        .help("Days after which deleted conversations and files are removed for good; 0 leaves that to `threadkeep purge`"),
    number!(tool_result_chars, "TOOL_RESULT_CHARS", Count, 1)
        .help("Characters of a tool's result that the model sees"),
    number!(max_tool_rounds, "MAX_TOOL_ROUNDS", Count, 1).help("Rounds of tool calls in one turn"),
    number!(context_budget_chars, "CONTEXT_BUDGET_CHARS", Count, 1)
        .help("Characters of history and context sent to a model"),
    number!(lease_seconds, "LEASE_SECONDS", Seconds, 1)
        .help("How long a node holds a run without renewing; renewed every third of it"),
    number!(run_timeout_seconds, "RUN_TIMEOUT_SECONDS", Seconds, 1).help("Longest a run may take"),
    number!(sandbox_idle_seconds, "SANDBOX_IDLE_SECONDS", Seconds, 1)
        .help("Silence after which a sandbox run counts as lost"),
    number!(upload_otp_ttl_seconds, "UPLOAD_OTP_TTL_SECONDS", Seconds, 1)
        .help("How long a run's upload password is good")
        .otherwise("run_timeout_seconds + 60"),
    number!(event_log_ttl_seconds, "EVENT_LOG_TTL_SECONDS", Seconds, 1)
        .help("How long a settled run's events can be read again"),
    number!(max_line_bytes, "MAX_LINE_BYTES", Bytes, 1).help("Longest line taken from a sandbox"),
    number!(max_body_bytes, "MAX_BODY_BYTES", Bytes, 1).help("Largest JSON body of a request"),
    number!(disconnect_grace_seconds, "DISCONNECT_GRACE_SECONDS", Seconds, 0)
        .help("How long a run goes on after its last reader has left"),
    number!(model_first_token_seconds, "MODEL_FIRST_TOKEN_SECONDS", Seconds, 1)
        .help("Longest wait for a model's first token"),
    number!(model_idle_seconds, "MODEL_IDLE_SECONDS", Seconds, 1)
        .help("Longest silence of a model after that"),
    number!(model_retries, "MODEL_RETRIES", Count, 0).help("Repeated tries after a model's failure"),
    number!(tool_timeout_seconds, "TOOL_TIMEOUT_SECONDS", Seconds, 1).help("Longest a tool call may take"),
    number!(max_open_runs_per_user, "MAX_OPEN_RUNS_PER_USER", Count, 1)
        .help("Runs one user may have open in one workspace"),
    number!(max_open_runs_per_workspace, "MAX_OPEN_RUNS_PER_WORKSPACE", Count, 0)
        .help("Runs one workspace may have open; 0 is no limit"),
    number!(max_streams_per_user, "MAX_STREAMS_PER_USER", Count, 1)
        .help("Event streams one user may have open"),
    number!(requests_per_second, "REQUESTS_PER_SECOND", Count, 0)
        .help("Requests per caller, with a burst of twice that; 0 is no limit, as in local mode unless it is set"),
    number!(requests_per_second_per_workspace, "REQUESTS_PER_SECOND_PER_WORKSPACE", Count, 0)
        .help("Requests of all callers of one workspace, with a burst of twice that; 0 is no limit"),
    number!(tokens_per_day_per_user, "TOKENS_PER_DAY_PER_USER", Count, 0)
        .help("Tokens of models one user may use in a day (UTC) in one workspace; 0 is no limit"),
    number!(tokens_per_day_per_workspace, "TOKENS_PER_DAY_PER_WORKSPACE", Count, 0)
        .help("Tokens of models one workspace may use in a day (UTC); 0 is no limit"),
    number!(sandbox_concurrency, "SANDBOX_CONCURRENCY", Count, 1)
        .help("Runs at once in the built-in sandbox; more wait"),
    number!(sandbox_cpu_seconds, "SANDBOX_CPU_SECONDS", Seconds, 1)
        .help("Processor time of one run in the built-in sandbox"),
    number!(sandbox_memory_bytes, "SANDBOX_MEMORY_BYTES", Bytes, 16 * MIB)
        .help("Memory of one run in the built-in sandbox"),
    number!(sandbox_disk_bytes, "SANDBOX_DISK_BYTES", Bytes, MIB)
        .help("Disk of one run in the built-in sandbox"),
    number!(sandbox_processes, "SANDBOX_PROCESSES", Count, 1)
        .help("Processes of one run in the built-in sandbox"),
];

/// Every number as the variable that sets it, for a process of ours that is to have the same.
pub fn as_env(limits: &Limits) -> Vec<(&'static str, String)> {
    let mut limits = limits.clone();
    let numbers = NUMBERS.iter().filter_map(|setting| match &setting.kind {
        Kind::Number { place, .. } => Some((setting.env, place(&mut limits).to_string())),
        _ => None,
    });
    numbers.collect()
}

const fn number(
    key: &'static str,
    env: &'static str,
    unit: Unit,
    min: u64,
    place: fn(&mut Limits) -> &mut u64,
) -> Setting {
    row("Limits", key, env, Kind::Number { unit, min, place })
}
