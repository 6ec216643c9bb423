//! The room's first process: answers the service's questions one by one, reaps what ends, keeps the limits, and ends
//! when the service goes away. All that lives in the room dies with it.

use std::io::{self, BufReader, Stdin, Stdout};
use std::os::fd::AsFd as _;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use nix::errno::Errno;
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::sys::prctl;
use nix::sys::signal::{Signal, kill};
use nix::sys::wait::{WaitPidFlag, WaitStatus, waitpid};
use nix::unistd::{Pid, getpid};

use super::usage::{self, Process};
use super::{WORKSPACE, confine, doing, enter};
use crate::Layer;
use crate::frame::{self, Answer, Ask, Kind, Setup};

/// How often limits are looked at.
pub const TICK_MS: u16 = 50;

pub struct Init {
    pub setup: Setup,
    pub workspace: PathBuf,
    /// A limit of the whole run that was passed: no program runs any more.
    pub spent: Option<String>,
    pub input: BufReader<Stdin>,
    output: Stdout,
}

/// Shuts the room and serves it to the end.
pub fn settle(setup: &Setup) -> Result<ExitCode, String> {
    let mut layers = match &setup.kind {
        Kind::Bare(_) => Vec::new(),
        // In a namespace of our own we are the first, whoever made it.
        _ if getpid() == Pid::from_raw(1) => vec![Layer::Namespaces],
        _ => return Err("the room's first process is not the first of its namespace".into()),
    };
    let workspace = match &setup.kind {
        Kind::Bare(folder) => {
            prctl::set_child_subreaper(true).map_err(doing("subreaper"))?;
            Path::new(folder).join("workspace")
        }
        _ => PathBuf::from(WORKSPACE),
    };
    std::fs::create_dir_all(workspace.join("assets")).map_err(doing("the workspace"))?;
    std::env::set_current_dir(&workspace).map_err(doing("the workspace"))?;
    // If memory runs out on the machine, this goes first.
    let _ = std::fs::write("/proc/self/oom_score_adj", "1000");
    layers.extend(confine::confine(setup)?);
    if layers.contains(&Layer::Namespaces) {
        enter::die_with_parent()?;
    }
    // Nobody in the room may look into us.
    prctl::set_dumpable(false).map_err(doing("dumpable"))?;
    let mut init = Init {
        setup: setup.clone(),
        workspace,
        spent: None,
        input: BufReader::new(io::stdin()),
        output: io::stdout(),
    };
    init.answer(&Answer::Ready { layers }, &[])?;
    init.serve()
}

impl Init {
    pub fn answer(&mut self, answer: &Answer, payload: &[u8]) -> Result<(), String> {
        frame::write(&mut self.output, answer, payload).map_err(doing("the service"))
    }

    fn serve(&mut self) -> Result<ExitCode, String> {
        loop {
            while self.input.buffer().is_empty() && !self.asked()? {
                self.reap();
                self.keep_limits();
            }
            let asked = frame::read(&mut self.input).map_err(doing("a question"));
            let taken = match asked {
                Ok(Some((ask, payload))) => self.take(ask, payload),
                Ok(None) => Err("the service has ended".into()),
                Err(error) => Err(error),
            };
            if let Err(error) = taken {
                self.end_all();
                return Err(error);
            }
        }
    }

    fn take(&mut self, ask: Ask, payload: Vec<u8>) -> Result<(), String> {
        match ask {
            Ask::Run { argv, timeout_ms } => self.run(&argv, payload, timeout_ms),
            Ask::Collect { max_files, max_file_bytes, max_bytes } => {
                self.end_all();
                self.collect(max_files, max_file_bytes, max_bytes)
            }
            Ask::Put { path, append, executable } => {
                let done = self.put(&path, &payload, append, executable);
                self.answer(&done.map_or_else(|message| Answer::Failed { message }, |()| Answer::Done), &[])
            }
            Ask::Read { path, limit } => match self.read(&path, limit) {
                Ok(bytes) => self.answer(&Answer::Done, &bytes),
                Err(message) => self.answer(&Answer::Failed { message }, &[]),
            },
            Ask::List { path } => match self.list(&path) {
                Ok(text) => self.answer(&Answer::Done, text.as_bytes()),
                Err(message) => self.answer(&Answer::Failed { message }, &[]),
            },
        }
    }

    /// Waits a moment for a question, or for the service's end, which reads as one.
    fn asked(&self) -> Result<bool, String> {
        let stdin = io::stdin();
        let mut fds = [PollFd::new(stdin.as_fd(), PollFlags::POLLIN)];
        match poll(&mut fds, PollTimeout::from(TICK_MS * 4)) {
            Ok(ready) => Ok(ready > 0),
            Err(Errno::EINTR) => Ok(false),
            Err(error) => Err(format!("poll: {error}")),
        }
    }

    /// Whatever ended and is ours to wait for.
    pub fn reap(&self) -> Vec<WaitStatus> {
        let mut ended = Vec::new();
        while let Ok(status) = waitpid(None, Some(WaitPidFlag::WNOHANG)) {
            match status {
                WaitStatus::StillAlive => break,
                status => ended.push(status),
            }
        }
        ended
    }

    /// Everything that runs in the room, beside us.
    fn processes(&self) -> Vec<Process> {
        let all = usage::processes();
        if !matches!(self.setup.kind, Kind::Bare(_)) {
            return all;
        }
        // Without a namespace: those that descend from us.
        let mut ours = vec![getpid().as_raw()];
        let mut found: Vec<Process> = Vec::new();
        while let Some(parent) = ours.pop() {
            for process in all.iter().filter(|process| process.parent == parent) {
                ours.push(process.pid);
                found.push(*process);
            }
        }
        found
    }

    /// Ends what runs where a limit is passed; which one it was.
    pub fn keep_limits(&mut self) -> Option<String> {
        let limits = self.setup.limits;
        let processes = self.processes();
        let used = usage::of(&processes, limits.memory_bytes);
        let passed = if used.cpu_ms > limits.cpu_seconds.saturating_mul(1000) {
            let text = format!(
                "the run has used its {} s of processor time (SANDBOX_CPU_SECONDS)",
                limits.cpu_seconds
            );
            self.spent = Some(text.clone());
            text
        } else if used.memory_bytes > limits.memory_bytes {
            format!("more than {} bytes of memory were used (SANDBOX_MEMORY_BYTES)", limits.memory_bytes)
        } else if used.tasks > limits.processes {
            format!("more than {} processes were running (SANDBOX_PROCESSES)", limits.processes)
        } else if self.is_full() {
            format!("more than {} bytes of disk were used (SANDBOX_DISK_BYTES)", limits.disk_bytes)
        } else {
            return None;
        };
        self.end_all();
        Some(passed)
    }

    /// Ends every process of the room but this one.
    pub fn end_all(&self) {
        // Those that are ended may be starting others: until there are none.
        for _ in 0..200 {
            if getpid() == Pid::from_raw(1) {
                let _ = kill(Pid::from_raw(-1), Signal::SIGKILL);
            } else {
                for process in self.processes() {
                    let _ = kill(Pid::from_raw(process.pid), Signal::SIGKILL);
                }
            }
            self.reap();
            if self.processes().is_empty() {
                return;
            }
            std::thread::sleep(std::time::Duration::from_millis(5));
        }
    }
}
