//! The numbers an operator may change: sizes, counts and spans, each with its default.
//! A field's name is its setting's name; what it counts is the last word of the name.

use crate::open_runs::RunLimits;
use crate::tokens::TokenLimits;

const KIB: u64 = 1024;
const MIB: u64 = 1024 * KIB;
const GIB: u64 = 1024 * MIB;

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Limits {
    pub replay_turn_limit: u64,
    pub chat_bag_zip_url_ttl_seconds: u64,
    pub max_persisted_tabs: u64,
    pub max_file_bytes: u64,
    pub max_files_per_message: u64,
    pub max_bag_bytes: u64,
    /// How old an unfinished upload, or bytes that no file names, must be to be swept.
    pub file_grace_seconds: u64,
    /// Soft-deleted things older than this are removed for good; 0 keeps them until `threadkeep purge`.
    pub retention_days: u64,
    pub tool_result_chars: u64,
    pub max_tool_rounds: u64,
    pub context_budget_chars: u64,
    pub lease_seconds: u64,
    pub run_timeout_seconds: u64,
    pub sandbox_idle_seconds: u64,
    pub upload_otp_ttl_seconds: u64,
    /// Counted from the moment the run settles.
    pub event_log_ttl_seconds: u64,
    pub max_line_bytes: u64,
    /// Of a JSON body; uploads have `max_file_bytes`.
    pub max_body_bytes: u64,
    pub disconnect_grace_seconds: u64,
    pub model_first_token_seconds: u64,
    pub model_idle_seconds: u64,
    pub model_retries: u64,
    pub tool_timeout_seconds: u64,
    pub max_open_runs_per_user: u64,
    /// 0 is no limit.
    pub max_open_runs_per_workspace: u64,
    pub max_streams_per_user: u64,
    /// Per caller, with a burst of twice that; 0 is no limit.
    pub requests_per_second: u64,
    /// As `requests_per_second`, of all callers together.
    pub requests_per_second_per_workspace: u64,
    /// Of one user in one workspace; 0 is no limit.
    pub tokens_per_day_per_user: u64,
    pub tokens_per_day_per_workspace: u64,
    pub sandbox_concurrency: u64,
    pub sandbox_cpu_seconds: u64,
    pub sandbox_memory_bytes: u64,
    pub sandbox_disk_bytes: u64,
    pub sandbox_processes: u64,
}

impl Limits {
    pub fn tokens(&self) -> TokenLimits {
        TokenLimits { user: self.tokens_per_day_per_user, workspace: self.tokens_per_day_per_workspace }
    }

    pub fn open_runs(&self) -> RunLimits {
        RunLimits { user: self.max_open_runs_per_user, workspace: self.max_open_runs_per_workspace }
    }

    /// The upload password outlives the longest run by a minute, so that a run cut off by its
    /// time-out can still hand in its files.
    pub fn upload_otp_ttl_for(run_timeout_seconds: u64) -> u64 {
        run_timeout_seconds.saturating_add(60)
    }
}

impl Default for Limits {
    fn default() -> Self {
        let run_timeout_seconds = 1800;
        Self {
            replay_turn_limit: 20,
            chat_bag_zip_url_ttl_seconds: 300,
            max_persisted_tabs: 50,
            max_file_bytes: 50 * MIB,
            max_files_per_message: 10,
            max_bag_bytes: GIB,
            file_grace_seconds: 3600,
            retention_days: 0,
            tool_result_chars: 4000,
            max_tool_rounds: 5,
            context_budget_chars: 400_000,
            lease_seconds: 15,
            run_timeout_seconds,
            sandbox_idle_seconds: 120,
            upload_otp_ttl_seconds: Self::upload_otp_ttl_for(run_timeout_seconds),
            event_log_ttl_seconds: 3600,
            max_line_bytes: MIB,
            max_body_bytes: 2 * MIB,
            disconnect_grace_seconds: 0,
            model_first_token_seconds: 60,
            model_idle_seconds: 60,
            model_retries: 2,
            tool_timeout_seconds: 60,
            max_open_runs_per_user: 100,
            max_open_runs_per_workspace: 0,
            max_streams_per_user: 500,
            requests_per_second: 200,
            requests_per_second_per_workspace: 0,
            tokens_per_day_per_user: 0,
            tokens_per_day_per_workspace: 0,
            sandbox_concurrency: 4,
            sandbox_cpu_seconds: 300,
            sandbox_memory_bytes: GIB,
            sandbox_disk_bytes: GIB,
            sandbox_processes: 128,
        }
    }
}
