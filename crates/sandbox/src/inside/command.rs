//! A program in the room, from its start to its end: its output gathered, its limits kept.

use std::io::{self, Read as _, Write as _};
use std::os::fd::AsFd as _;
use std::process::{ChildStdin, Command, Stdio};
use std::time::{Duration, Instant};

use nix::fcntl::{FcntlArg, OFlag, fcntl};
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::sys::wait::WaitStatus;

use super::init::{Init, TICK_MS};
use crate::frame::{Answer, Kind};

/// What is kept of a program's output: its beginning and its end, this much of each.
const KEPT: usize = 64 * 1024;
/// How far programs stand back behind others.
const NICE: i32 = 10;

impl Init {
    /// Runs a program to its end, and answers.
    pub fn run(&mut self, argv: &[String], input: Vec<u8>, timeout_ms: u64) -> Result<(), String> {
        if let Some(spent) = &self.spent {
            let limit = Some(spent.clone());
            return self.answer(&Answer::Ended { code: None, signal: None, limit }, &[]);
        }
        match self.start(argv, input) {
            Ok(started) => {
                let (answer, output) = self.follow(started, Duration::from_millis(timeout_ms))?;
                self.answer(&answer, &output)
            }
            Err(error) => {
                let message = format!("it could not be started: {error}");
                self.answer(&Answer::Failed { message }, &[])
            }
        }
    }

    fn start(&self, argv: &[String], input: Vec<u8>) -> io::Result<Started> {
        let (reader, writer) = io::pipe()?;
        let path = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin";
        let home = match &self.setup.kind {
            Kind::Bare(folder) => folder.as_str(),
            _ => "/root",
        };
        let program = argv.first().map(String::as_str).unwrap_or("true");
        let mut child = Command::new(program)
            .args(argv.get(1..).unwrap_or_default())
            .env_clear()
            .envs([("PATH", path), ("HOME", home), ("USER", "root"), ("LANG", "C.UTF-8"), ("TERM", "dumb")])
            // An archive's owners do not exist here.
            .env("TAR_OPTIONS", "--no-same-owner")
            .env("WORKSPACE", &self.workspace)
            .envs(matches!(self.setup.kind, Kind::Bare(_)).then_some(("TMPDIR", home)))
            .current_dir(&self.workspace)
            .stdin(if input.is_empty() { Stdio::null() } else { Stdio::piped() })
            .stdout(writer.try_clone()?)
            .stderr(writer)
            .spawn()?;
        let pid = i32::try_from(child.id()).unwrap_or(i32::MAX);
        // We, who keep the limits, and the server come first.
        let _ = rustix::process::setpriority_process(rustix::process::Pid::from_raw(pid), NICE);
        let input = child.stdin.take().map(|pipe| {
            // One that does not read must not hold us up.
            let _ = fcntl(pipe.as_fd(), FcntlArg::F_SETFL(OFlag::O_NONBLOCK));
            Input { pipe, bytes: input, written: 0 }
        });
        let _ = fcntl(reader.as_fd(), FcntlArg::F_SETFL(OFlag::O_NONBLOCK));
        Ok(Started { pid, input, pipe: reader })
    }

    fn follow(&mut self, started: Started, patience: Duration) -> Result<(Answer, Vec<u8>), String> {
        let Started { pid, mut input, mut pipe } = started;
        let (began, mut looked) = (Instant::now(), Instant::now());
        let mut output = Output::default();
        loop {
            if input.as_mut().is_some_and(Input::is_over) {
                input = None;
            }
            let open = self.wait(&pipe, output.ended, input.as_ref())?;
            if !open {
                return Err("the service has ended".into());
            }
            output.drain(&mut pipe);
            let ended =
                self.reap().into_iter().find(|status| status.pid().is_some_and(|one| one.as_raw() == pid));
            if let Some(status) = ended {
                // What it wrote last is in the pipe; what it left running may hold that open.
                output.drain(&mut pipe);
                let (code, signal) = match status {
                    WaitStatus::Exited(_, code) => (Some(code), None),
                    WaitStatus::Signaled(_, signal, _) => (None, Some(signal as i32)),
                    _ => (None, None),
                };
                // What it left running may be more than may.
                let limit = self.keep_limits();
                return Ok((Answer::Ended { code, signal, limit }, output.take()));
            }
            let mut limit = None;
            if began.elapsed() > patience {
                let seconds = patience.as_secs_f64();
                limit = Some(format!("it ran longer than {seconds} s (TOOL_TIMEOUT_SECONDS)"));
                self.end_all();
            } else if looked.elapsed() >= tick(began.elapsed()) {
                looked = Instant::now();
                limit = self.keep_limits();
            }
            if limit.is_some() {
                output.drain(&mut pipe);
                return Ok((Answer::Ended { code: None, signal: None, limit }, output.take()));
            }
        }
    }

    /// Until there is output, room for more input, or a moment has passed. False when the service has gone.
    fn wait(&self, pipe: &io::PipeReader, ended: bool, input: Option<&Input>) -> Result<bool, String> {
        let stdin = io::stdin();
        let mut fds = vec![PollFd::new(stdin.as_fd(), PollFlags::empty())];
        if !ended {
            fds.push(PollFd::new(pipe.as_fd(), PollFlags::POLLIN));
        }
        if let Some(input) = input {
            fds.push(PollFd::new(input.pipe.as_fd(), PollFlags::POLLOUT));
        }
        // A program that just ended is seen soon, one that runs on costs little.
        let _ = poll(&mut fds, PollTimeout::from(if ended { 2u16 } else { 10 }));
        Ok(!hung_up(&fds[0]))
    }

    /// Whether the service has gone.
    pub fn is_abandoned(&self) -> bool {
        let stdin = io::stdin();
        let mut fds = [PollFd::new(stdin.as_fd(), PollFlags::empty())];
        let _ = poll(&mut fds, PollTimeout::ZERO);
        hung_up(&fds[0])
    }
}

fn hung_up(fd: &PollFd) -> bool {
    fd.revents().is_some_and(|seen| seen.intersects(PollFlags::POLLHUP | PollFlags::POLLERR))
}

/// What goes wild does so at once: a new program is looked at more often.
fn tick(age: Duration) -> Duration {
    let usual = u64::from(TICK_MS);
    Duration::from_millis(if age < Duration::from_secs(1) { usual / 5 } else { usual })
}

/// A program that runs, and both ends of what goes between us.
struct Started {
    pid: i32,
    input: Option<Input>,
    pipe: io::PipeReader,
}

/// What a program is given to read, as fast as it reads.
struct Input {
    pipe: ChildStdin,
    bytes: Vec<u8>,
    written: usize,
}

impl Input {
    /// Writes what fits the pipe. True when all is written, or nobody reads any more.
    fn is_over(&mut self) -> bool {
        loop {
            match self.pipe.write(&self.bytes[self.written..]) {
                Ok(0) => return true,
                Ok(count) => self.written += count,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return error.kind() != io::ErrorKind::WouldBlock,
            }
        }
    }
}

/// The beginning and the end of what a program wrote.
#[derive(Default)]
struct Output {
    head: Vec<u8>,
    tail: Vec<u8>,
    left_out: usize,
    ended: bool,
}

impl Output {
    fn drain(&mut self, pipe: &mut io::PipeReader) {
        let mut chunk = [0; 16 * 1024];
        // No more than a few pipes full at once: who writes on must not keep us from looking.
        for _ in 0..64 {
            match pipe.read(&mut chunk) {
                Ok(0) => {
                    self.ended = true;
                    return;
                }
                Ok(count) => self.push(&chunk[..count]),
                Err(_) => return,
            }
        }
    }

    fn push(&mut self, bytes: &[u8]) {
        let (head, rest) = bytes.split_at(bytes.len().min(KEPT - self.head.len()));
        self.head.extend_from_slice(head);
        self.tail.extend_from_slice(rest);
        if self.tail.len() > 2 * KEPT {
            let cut = self.tail.len() - KEPT;
            self.tail.drain(..cut);
            self.left_out += cut;
        }
    }

    fn take(mut self) -> Vec<u8> {
        if self.tail.len() > KEPT {
            let cut = self.tail.len() - KEPT;
            self.tail.drain(..cut);
            self.left_out += cut;
        }
        if self.left_out > 0 {
            self.head.extend_from_slice(format!("\n[… {} bytes left out …]\n", self.left_out).as_bytes());
        }
        self.head.append(&mut self.tail);
        self.head
    }
}
