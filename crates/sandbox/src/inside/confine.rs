//! Shuts what the namespaces leave open, for this process and all that it starts: limits, capabilities, Landlock,
//! and the filter on system calls. None of it can be taken back.

use std::path::Path;

use landlock::{
    ABI, Access as _, AccessFs, CompatLevel, Compatible as _, Ruleset, RulesetAttr as _,
    RulesetCreatedAttr as _, RulesetError, RulesetStatus, Scope, path_beneath_rules,
};
use nix::sys::prctl;
use nix::sys::resource::{RLIM_INFINITY, Resource, getrlimit, setrlimit};
use nix::unistd::geteuid;
use rustix::thread::{CapabilitySet, CapabilitySets};

use super::{doing, furnish, syscalls, usage};
use crate::Layer;
use crate::frame::{Kind, RoomLimits, Setup};

/// The newest rights that are asked for; an older kernel gives what it has.
const RIGHTS: ABI = ABI::V6;

/// What a program that opens files by the thousand needs.
const OPEN_FILES: u64 = 1024;

/// Gives the layers that hold, beside the namespaces.
pub fn confine(setup: &Setup) -> Result<Vec<Layer>, String> {
    let mut layers = Vec::new();
    let bare = matches!(setup.kind, Kind::Bare(_));
    limits(&setup.limits, bare).map_err(doing("limits"))?;
    drop_capabilities().map_err(doing("capabilities"))?;
    prctl::set_no_new_privs().map_err(doing("no_new_privs"))?;
    let wanted = |layer: Layer| !setup.without.contains(&layer);
    if wanted(Layer::Landlock) && paths(&setup.kind).map_err(doing("Landlock"))? {
        layers.push(Layer::Landlock);
    }
    if wanted(Layer::Seccomp) && syscalls::filter(bare).is_ok() {
        layers.push(Layer::Seccomp);
    }
    Ok(layers)
}

fn limits(limits: &RoomLimits, bare: bool) -> nix::Result<()> {
    // A last bound, a little above the number that is watched: what passes that is ended and told, where the kernel
    // would only refuse. Without a namespace the kernel counts all that the user runs.
    let others = if bare { usage::running_as(geteuid()).saturating_mul(2) } else { 0 };
    let processes = (limits.processes + limits.processes / 4).saturating_add(others + 8);
    // A room's own disk has its size.
    let file = if bare { limits.disk_bytes } else { RLIM_INFINITY };
    for (resource, limit) in [
        (Resource::RLIMIT_CORE, 0),
        // The same: the kernel ends a process without a word of why.
        (Resource::RLIMIT_CPU, limits.cpu_seconds.saturating_add(1)),
        // Of private memory that can be written. Address space alone costs nothing, and runtimes reserve much.
        (Resource::RLIMIT_DATA, limits.memory_bytes),
        (Resource::RLIMIT_FSIZE, file),
        (Resource::RLIMIT_NPROC, processes),
        (Resource::RLIMIT_NOFILE, OPEN_FILES),
        (Resource::RLIMIT_MEMLOCK, 64 * 1024),
        (Resource::RLIMIT_MSGQUEUE, 0),
    ] {
        let (_, most) = getrlimit(resource)?;
        let limit = limit.min(most);
        setrlimit(resource, limit, limit)?;
    }
    Ok(())
}

fn drop_capabilities() -> rustix::io::Result<()> {
    let held = rustix::thread::capabilities(None)?.effective;
    if held.contains(CapabilitySet::SETPCAP) {
        for one in CapabilitySet::all().iter() {
            match rustix::thread::remove_capability_from_bounding_set(one) {
                // One that this kernel does not know.
                Err(rustix::io::Errno::INVAL) => {}
                removed => removed?,
            }
        }
    }
    let none = CapabilitySet::empty();
    rustix::thread::set_capabilities(
        None,
        CapabilitySets { effective: none, permitted: none, inheritable: none },
    )
}

/// Whether Landlock holds. Where the root is the room's own this is a second wall; without one it is the first.
fn paths(kind: &Kind) -> Result<bool, RulesetError> {
    let (all, read) = (AccessFs::from_all(RIGHTS), AccessFs::from_read(RIGHTS));
    let device = AccessFs::from_file(RIGHTS);
    let devices = ["null", "zero", "full", "random", "urandom", "tty"].map(|name| format!("/dev/{name}"));
    let (readable, writable): (Vec<&Path>, Vec<&Path>) = match kind {
        Kind::Bare(folder) => {
            // In `/proc` we see whom to end. Other processes' secrets there are kept from us by Landlock, too.
            let system = furnish::SYSTEM.iter().chain(&furnish::ETC).chain(&["/proc"]).map(Path::new);
            (system.collect(), vec![Path::new(folder)])
        }
        Kind::Own | Kind::Bubblewrap => {
            (vec![Path::new("/")], ["/root", "/tmp", "/dev/shm"].map(Path::new).to_vec())
        }
    };
    let status = Ruleset::default()
        .set_compatibility(CompatLevel::BestEffort)
        .handle_access(all)?
        .scope(Scope::from_all(RIGHTS))?
        .create()?
        .add_rules(path_beneath_rules(readable, read))?
        .add_rules(path_beneath_rules(devices, device))?
        .add_rules(path_beneath_rules(writable, all))?
        .restrict_self()?;
    Ok(status.ruleset != RulesetStatus::NotEnforced)
}
