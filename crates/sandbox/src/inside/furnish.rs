//! The room's root: an empty one, with the system's folders bound in to be read only, devices that hold nothing, a
//! `/proc` that shows the room alone, and one place to write with the size that the limit says.

use std::fs;
use std::io::ErrorKind;
use std::os::unix::fs::{PermissionsExt as _, symlink};
use std::path::{Path, PathBuf};

use nix::mount::{MntFlags, MsFlags, mount, umount2};
use nix::sys::socket::{AddressFamily, MsgFlags, SockFlag, SockProtocol, SockType, send, socket};
use nix::unistd::{chdir, pivot_root, sethostname};
use std::os::fd::AsRawFd as _;

use super::{WORKSPACE, doing};
use crate::frame::Setup;

/// Folders of the system that every program may need.
pub const SYSTEM: [&str; 8] = ["/usr", "/bin", "/sbin", "/lib", "/lib32", "/lib64", "/libx32", "/nix/store"];
/// Of `/etc` only what tells programs where the system's parts are.
pub const ETC: [&str; 5] =
    ["/etc/alternatives", "/etc/ld.so.cache", "/etc/ld.so.conf", "/etc/ld.so.conf.d", "/etc/localtime"];
/// Of the system's folders those where an operator may keep what only the service should read.
const LOCAL_SETTINGS: [&str; 2] = ["/usr/local/etc", "/usr/etc"];
const DEVICES: [&str; 5] = ["null", "zero", "full", "random", "urandom"];
/// Where the new root is put together. Whatever is there is hidden by it.
const BASE: &str = "/tmp";
/// Small files cost memory beside their bytes.
const MOST_FILES: u64 = 200_000;

const QUIET: MsFlags = MsFlags::MS_NOSUID.union(MsFlags::MS_NODEV);

pub fn furnish(setup: &Setup) -> Result<(), String> {
    let none: Option<&str> = None;
    mount(none, "/", none, MsFlags::MS_REC | MsFlags::MS_PRIVATE, none).map_err(doing("private mounts"))?;
    let bytes = setup.limits.disk_bytes;
    let options = format!("size={bytes},nr_inodes={},mode=0755", (bytes / 4096).clamp(1024, MOST_FILES));
    mount(Some("tmpfs"), BASE, Some("tmpfs"), QUIET, Some(options.as_str())).map_err(doing("the root"))?;
    for folder in SYSTEM {
        bind_system(folder)?;
    }
    for file in ETC {
        bind_system(file)?;
    }
    write_etc()?;
    for path in hidden(setup) {
        let over = within(&path);
        let flags = QUIET | MsFlags::MS_RDONLY;
        mount(Some("tmpfs"), &over, Some("tmpfs"), flags, Some("size=0"))
            .map_err(doing("hiding a folder"))?;
    }
    proc_and_devices()?;
    for folder in ["root", "tmp", "dev/shm"] {
        let folder = within(Path::new("/")).join(folder);
        make(&folder)?;
        bind(&folder, &folder)?;
    }
    make(&within(Path::new(WORKSPACE)))?;
    for open in ["tmp", "dev/shm"] {
        let path = within(Path::new("/")).join(open);
        fs::set_permissions(&path, fs::Permissions::from_mode(0o1777)).map_err(doing(open))?;
    }
    enter_root()?;
    let _ = sethostname("sandbox");
    // Without it nothing in the room can talk to itself over TCP; nothing else depends on it.
    let _ = loopback_up();
    Ok(())
}

/// What is to be hidden of what is bound in.
pub fn hidden(setup: &Setup) -> Vec<PathBuf> {
    let below = |path: &PathBuf| path.is_dir() && SYSTEM.iter().any(|system| path.starts_with(system));
    setup.hide.iter().map(String::as_str).chain(LOCAL_SETTINGS).map(PathBuf::from).filter(below).collect()
}

fn within(path: &Path) -> PathBuf {
    Path::new(BASE).join(path.strip_prefix("/").unwrap_or(path))
}

fn make(folder: &Path) -> Result<(), String> {
    fs::create_dir_all(folder).map_err(doing(folder.display()))
}

fn bind(from: &Path, to: &Path) -> Result<(), String> {
    let none: Option<&str> = None;
    mount(Some(from), to, none, MsFlags::MS_BIND | MsFlags::MS_REC, none).map_err(doing(to.display()))
}

fn bind_system(path: &str) -> Result<(), String> {
    let (from, to) = (Path::new(path), within(Path::new(path)));
    let found = match fs::symlink_metadata(from) {
        Err(error) if error.kind() == ErrorKind::NotFound => return Ok(()),
        found => found.map_err(doing(path))?,
    };
    if let Some(parent) = to.parent() {
        make(parent)?;
    }
    if found.is_symlink() {
        let target = fs::read_link(from).map_err(doing(path))?;
        return symlink(target, &to).map_err(doing(path));
    }
    if found.is_dir() {
        make(&to)?;
    } else {
        fs::write(&to, "").map_err(doing(path))?;
    }
    bind(from, &to)?;
    read_only(&to)
}

/// A mount's own flags and those of every mount below it: a bind mount takes its children along.
fn read_only(top: &Path) -> Result<(), String> {
    let table = fs::read_to_string("/proc/self/mountinfo").map_err(doing("mountinfo"))?;
    for line in table.lines() {
        let mut fields = line.split(' ').skip(4);
        let (Some(point), Some(options)) = (fields.next(), fields.next()) else { continue };
        let point = PathBuf::from(unescape(point));
        if !point.starts_with(top) {
            continue;
        }
        let mut flags = MsFlags::MS_BIND | MsFlags::MS_REMOUNT | MsFlags::MS_RDONLY | QUIET;
        // What was there already must stay, or the change is refused.
        for option in options.split(',') {
            flags |= match option {
                "noexec" => MsFlags::MS_NOEXEC,
                "noatime" => MsFlags::MS_NOATIME,
                "nodiratime" => MsFlags::MS_NODIRATIME,
                "relatime" => MsFlags::MS_RELATIME,
                _ => MsFlags::empty(),
            };
        }
        let none: Option<&str> = None;
        mount(none, &point, none, flags, none).map_err(doing(format!("read-only {}", point.display())))?;
    }
    Ok(())
}

/// mountinfo writes white space and backslashes in octal.
fn unescape(text: &str) -> String {
    [("\\040", " "), ("\\011", "\t"), ("\\012", "\n"), ("\\134", "\\")]
        .iter()
        .fold(text.to_owned(), |text, (code, plain)| text.replace(code, plain))
}

fn write_etc() -> Result<(), String> {
    let etc = within(Path::new("/etc"));
    make(&etc)?;
    for (name, text) in [
        ("passwd", "root:x:0:0:agent:/root:/bin/sh\nnobody:x:65534:65534:nobody:/:/bin/false\n"),
        ("group", "root:x:0:\nnogroup:x:65534:\n"),
        ("hosts", "127.0.0.1 localhost\n::1 localhost\n"),
        ("nsswitch.conf", "passwd: files\ngroup: files\nhosts: files\n"),
    ] {
        fs::write(etc.join(name), text).map_err(doing(name))?;
    }
    let var = within(Path::new("/var"));
    make(&var)?;
    symlink("/tmp", var.join("tmp")).map_err(doing("/var/tmp"))
}

fn proc_and_devices() -> Result<(), String> {
    let proc = within(Path::new("/proc"));
    make(&proc)?;
    let none: Option<&str> = None;
    mount(Some("proc"), &proc, Some("proc"), QUIET | MsFlags::MS_NOEXEC, none).map_err(doing("/proc"))?;
    let dev = within(Path::new("/dev"));
    make(&dev)?;
    for device in DEVICES {
        let to = dev.join(device);
        fs::write(&to, "").map_err(doing(device))?;
        bind(&Path::new("/dev").join(device), &to)?;
    }
    for (name, to) in [("fd", "fd"), ("stdin", "fd/0"), ("stdout", "fd/1"), ("stderr", "fd/2")] {
        symlink(format!("/proc/self/{to}"), dev.join(name)).map_err(doing(name))?;
    }
    Ok(())
}

fn enter_root() -> Result<(), String> {
    let none: Option<&str> = None;
    chdir(BASE).map_err(doing("chdir"))?;
    pivot_root(".", ".").map_err(doing("pivot_root"))?;
    // The old root lies over the new one now.
    umount2(".", MntFlags::MNT_DETACH).map_err(doing("leaving the old root"))?;
    chdir("/").map_err(doing("chdir"))?;
    let flags = MsFlags::MS_BIND | MsFlags::MS_REMOUNT | MsFlags::MS_RDONLY | QUIET;
    mount(none, "/", none, flags, none).map_err(doing("read-only root"))
}

/// Asks the kernel over netlink to switch the room's loopback device on.
fn loopback_up() -> nix::Result<()> {
    let link =
        socket(AddressFamily::Netlink, SockType::Raw, SockFlag::SOCK_CLOEXEC, SockProtocol::NetlinkRoute)?;
    // A header (length, RTM_NEWLINK, REQUEST, sequence, port), then an ifinfomsg: device 1, IFF_UP of IFF_UP.
    let mut message = Vec::with_capacity(32);
    message.extend_from_slice(&32u32.to_ne_bytes());
    message.extend_from_slice(&16u16.to_ne_bytes());
    message.extend_from_slice(&1u16.to_ne_bytes());
    message.extend_from_slice(&[0; 12]);
    message.extend_from_slice(&1i32.to_ne_bytes());
    message.extend_from_slice(&1u32.to_ne_bytes());
    message.extend_from_slice(&1u32.to_ne_bytes());
    send(link.as_raw_fd(), &message, MsgFlags::empty()).map(|_| ())
}
