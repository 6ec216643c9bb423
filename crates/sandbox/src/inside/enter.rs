//! Into the namespaces. The service's child leaves root behind, makes the namespaces (or has bubblewrap make them)
//! and starts the room's first process, with which it lives and dies.

use std::fs;
use std::os::unix::process::CommandExt as _;
use std::path::Path;
use std::process::{Command, ExitCode};

use nix::sched::{CloneFlags, unshare};
use nix::sys::prctl;
use nix::sys::signal::Signal;
use nix::unistd::{Gid, Uid, close, getegid, geteuid, getppid, setgroups, setresgid, setresuid};

use super::{SUBCOMMAND, doing};
use crate::frame::{Kind, Setup, Step};

/// Who the room's processes are to the machine where the service is root: nobody.
pub const NOBODY: u32 = 65534;

pub const BUBBLEWRAP: [&str; 2] = ["/usr/bin/bwrap", "/usr/local/bin/bwrap"];

/// Ends this process when its parent ends.
pub fn die_with_parent() -> Result<(), String> {
    // Where the parent is in another pid namespace it is 0 from here.
    let parent = getppid();
    prctl::set_pdeathsig(Signal::SIGKILL).map_err(doing("parent-death signal"))?;
    if getppid() == parent { Ok(()) } else { Err("the service has ended".into()) }
}

pub fn enter(setup: Setup) -> Result<ExitCode, String> {
    close_inherited()?;
    leave_root()?;
    if let Kind::Bare(_) = &setup.kind {
        // No namespace ends the others with us: when the service goes, we end them first.
        return super::init::settle(&setup);
    }
    match &setup.kind {
        // It ties itself to us. Killed before that, it would leave a child that waits for it for ever; as it is, the
        // room is made, finds its input over, and ends.
        Kind::Bubblewrap => bubblewrap(setup),
        _ => {
            die_with_parent()?;
            own(setup)
        }
    }
}

/// Whoever started the service may have left it descriptors: none of them is for the room.
fn close_inherited() -> Result<(), String> {
    let entries = fs::read_dir("/proc/self/fd").map_err(doing("/proc/self/fd"))?;
    let open: Vec<i32> = entries.filter_map(|entry| entry.ok()?.file_name().to_str()?.parse().ok()).collect();
    for fd in open.into_iter().filter(|fd| *fd > 2) {
        // The one that the list was read by is closed already.
        let _ = close(fd);
    }
    Ok(())
}

/// Whether this process is root and can be nobody instead. The root of a user namespace that has no nobody is an
/// ordinary user of the machine.
pub fn is_root_beside_nobody() -> bool {
    let map = fs::read_to_string("/proc/self/uid_map").unwrap_or_default();
    let holds_nobody = |line: &str| {
        let mut numbers = line.split_whitespace().filter_map(|text| text.parse::<u32>().ok());
        let (first, _, count) = (numbers.next(), numbers.next(), numbers.next());
        first.zip(count).is_some_and(|(first, count)| first <= NOBODY && NOBODY - first < count)
    };
    geteuid().is_root() && (map.is_empty() || map.lines().any(holds_nobody))
}

/// Root is not bound by limits on processes, and owns too much: the room's processes are nobody's.
fn leave_root() -> Result<(), String> {
    if is_root_beside_nobody() {
        let (uid, gid) = (Uid::from_raw(NOBODY), Gid::from_raw(NOBODY));
        setgroups(&[]).map_err(doing("setgroups"))?;
        setresgid(gid, gid, gid).map_err(doing("setgid"))?;
        setresuid(uid, uid, uid).map_err(doing("setuid"))?;
        // Our own /proc/self is root's otherwise.
        prctl::set_dumpable(true).map_err(doing("dumpable"))?;
    }
    Ok(())
}

fn own(setup: Setup) -> Result<ExitCode, String> {
    let (uid, gid) = (geteuid(), getegid());
    let all = CloneFlags::CLONE_NEWUSER
        | CloneFlags::CLONE_NEWNS
        | CloneFlags::CLONE_NEWPID
        | CloneFlags::CLONE_NEWNET
        | CloneFlags::CLONE_NEWIPC
        | CloneFlags::CLONE_NEWUTS
        | CloneFlags::CLONE_NEWCGROUP;
    unshare(all).map_err(doing("user namespaces cannot be made"))?;
    let map = |file: &str, text: String| {
        fs::write(format!("/proc/self/{file}"), text).map_err(doing(format!("/proc/self/{file}")))
    };
    map("setgroups", "deny".into())?;
    map("uid_map", format!("0 {uid} 1"))?;
    map("gid_map", format!("0 {gid} 1"))?;
    let mut child =
        Command::new("/proc/self/exe").args(again(setup, Step::Furnish)?).env_clear().spawn().map_err(
            doing("the program cannot be started again as the room's user; is it executable for all"),
        )?;
    let ended = child.wait().map_err(doing("waiting"))?;
    Ok(if ended.success() { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

fn again(mut setup: Setup, step: Step) -> Result<[String; 2], String> {
    setup.step = step;
    Ok([SUBCOMMAND.into(), serde_json::to_string(&setup).map_err(doing("setup"))?])
}

/// Replaces this process by bubblewrap, which starts this program again inside.
fn bubblewrap(setup: Setup) -> Result<ExitCode, String> {
    let found = BUBBLEWRAP.iter().find(|path| Path::new(path).exists());
    let program = found.ok_or("bubblewrap is not installed")?;
    let exe = fs::read_link("/proc/self/exe").map_err(doing("/proc/self/exe"))?;
    let mut command = Command::new(program);
    command.env_clear().args([
        "--unshare-all",
        "--die-with-parent",
        "--as-pid-1",
        "--new-session",
        "--clearenv",
    ]);
    command.args(["--uid", "0", "--gid", "0", "--hostname", "sandbox", "--cap-drop", "ALL"]);
    for folder in super::furnish::SYSTEM {
        match fs::read_link(folder) {
            Ok(to) => command.arg("--symlink").arg(to).arg(folder),
            Err(_) => command.args(["--ro-bind-try", folder, folder]),
        };
    }
    for file in super::furnish::ETC {
        command.args(["--ro-bind-try", file, file]);
    }
    for hidden in super::furnish::hidden(&setup) {
        command.arg("--tmpfs").arg(hidden);
    }
    let size = setup.limits.disk_bytes.to_string();
    command.args(["--proc", "/proc", "--dev", "/dev", "--size", &size, "--tmpfs", "/root"]);
    command.args(["--dir", super::WORKSPACE, "--dir", "/root/.tmp", "--symlink", "/root/.tmp", "/tmp"]);
    command.args(["--dir", "/etc", "--dir", "/var", "--symlink", "/tmp", "/var/tmp"]);
    command.arg("--ro-bind").arg(exe).arg("/.threadkeep");
    command.args(["--remount-ro", "/dev", "--remount-ro", "/", "--chdir", "/root", "--", "/.threadkeep"]);
    command.args(again(setup, Step::Settle)?);
    Err(format!("bubblewrap cannot be started: {}", command.exec()))
}
