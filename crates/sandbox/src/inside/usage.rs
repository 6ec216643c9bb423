//! What the room's processes use, by what `/proc` says of them.

use std::fs;
use std::os::unix::fs::MetadataExt as _;

use nix::sys::resource::{UsageWho, getrusage};
use nix::unistd::{SysconfVar, Uid, getpid, sysconf};

#[derive(Debug, Clone, Copy, Default)]
pub struct Usage {
    pub cpu_ms: u64,
    pub memory_bytes: u64,
    /// Processes and their threads.
    pub tasks: u64,
}

#[derive(Debug, Clone, Copy)]
pub struct Process {
    pub pid: i32,
    pub parent: i32,
    ticks: u64,
    tasks: u64,
    resident_pages: u64,
}

/// Everybody but ourselves that `/proc` shows.
pub fn processes() -> Vec<Process> {
    let own = getpid().as_raw();
    let Ok(entries) = fs::read_dir("/proc") else { return Vec::new() };
    let pids = entries.filter_map(|entry| entry.ok()?.file_name().to_str()?.parse::<i32>().ok());
    pids.filter(|pid| *pid != own).filter_map(read).collect()
}

fn read(pid: i32) -> Option<Process> {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    // The name may hold anything; the fields begin after its last bracket.
    let fields: Vec<&str> = stat.rsplit_once(") ")?.1.split(' ').collect();
    let number = |at: usize| fields.get(at).and_then(|text| text.parse::<u64>().ok());
    Some(Process {
        pid,
        parent: fields.get(1)?.parse().ok()?,
        ticks: (11..15).filter_map(number).sum(),
        tasks: number(17)?,
        resident_pages: number(21)?,
    })
}

/// How many processes and threads a user has on this machine.
pub fn running_as(user: Uid) -> u64 {
    let owner = |pid: i32| fs::metadata(format!("/proc/{pid}")).ok().map(|about| about.uid());
    let own = processes().into_iter().filter(|process| owner(process.pid) == Some(user.as_raw()));
    own.map(|process| process.tasks).sum()
}

/// Of the processes given, and of those that ended and that we have waited for.
pub fn of(processes: &[Process], memory_limit: u64) -> Usage {
    let per_second = sysconf(SysconfVar::CLK_TCK).ok().flatten().unwrap_or(100).max(1) as u64;
    let page = sysconf(SysconfVar::PAGE_SIZE).ok().flatten().unwrap_or(4096) as u64;
    let ticks: u64 = processes.iter().map(|process| process.ticks).sum();
    let ended = getrusage(UsageWho::RUSAGE_CHILDREN).map_or(0, |usage| {
        let (user, system) = (usage.user_time(), usage.system_time());
        (user.tv_sec() + system.tv_sec()) * 1000 + (user.tv_usec() + system.tv_usec()) / 1000
    });
    let mut memory_bytes: u64 = processes.iter().map(|process| process.resident_pages * page).sum();
    if memory_bytes > memory_limit {
        // Pages that several share were counted for each: once more, exactly.
        memory_bytes =
            processes.iter().map(|process| share(process.pid).unwrap_or(process.resident_pages * page)).sum();
    }
    let tasks = processes.iter().map(|process| process.tasks).sum();
    Usage { tasks, cpu_ms: ticks * 1000 / per_second + ended.max(0) as u64, memory_bytes }
}

/// A process's part of the pages it has.
fn share(pid: i32) -> Option<u64> {
    let text = fs::read_to_string(format!("/proc/{pid}/smaps_rollup")).ok()?;
    let line = text.lines().find_map(|line| line.strip_prefix("Pss:"))?;
    Some(line.trim().strip_suffix(" kB")?.trim().parse::<u64>().ok()? * 1024)
}
