//! What the service says at its start, and what it refuses: with all that the machine offers, and where user namespaces
//! are off.

use std::collections::BTreeMap;
use std::path::Path;
use std::process::{Command, Stdio};

use nix::libc;
use seccompiler::{
    BpfProgram, SeccompAction, SeccompCmpArgLen, SeccompCmpOp, SeccompCondition, SeccompFilter, SeccompRule,
};

use crate::world::{Service, World, command, users};

type Env<'a> = [(&'a str, &'a str)];

#[test]
fn the_start_says_which_layers_hold() {
    for user in users() {
        let line = Service::start(user, &[]).line.clone();
        assert!(line.contains("own namespaces; enforced: namespaces, landlock, seccomp, limits"), "{line}");
        assert!(line.contains("of all together by a watcher"), "{line}");
    }
}

#[test]
fn a_missing_layer_is_refused_by_name_and_can_be_allowed() {
    for layer in ["namespaces", "landlock", "seccomp"] {
        let words = refusal(command(None, &[("SANDBOX_WITHOUT", layer)]));
        assert!(words.contains(&format!("SANDBOX_ALLOW_MISSING={layer}")), "{words}");
        let allowed = Service::start(None, &[("SANDBOX_WITHOUT", layer), ("SANDBOX_ALLOW_MISSING", layer)]);
        assert!(allowed.line.contains(&format!("missing, as allowed: {layer}")), "{}", allowed.line);
    }
}

fn refusal(command: Command) -> String {
    Service::by(command).err().expect("a refusal")
}

/// The service where the kernel's number of user namespaces is 0, as an ordinary user or as one who is called root.
fn none_left(called: &[&str], env: &Env<'_>) -> Command {
    const LAST: &str = "echo 0 > /proc/sys/user/max_user_namespaces && \
        exec setpriv --ambient-caps=-all --inh-caps=-all --bounding-set=-all \"$0\" \"$@\"";
    let mut command = Command::new("unshare");
    command.arg("-U").args(called).args(["sh", "-c", LAST, env!("CARGO_BIN_EXE_threadkeep-sandbox")]);
    command.arg("127.0.0.1:0").env_clear().envs(env.iter().copied());
    command.stdout(Stdio::piped()).stderr(Stdio::piped());
    command
}

/// Forbids new namespaces to this thread and all that it starts, as container runtimes do.
fn forbid_namespaces() {
    let user = libc::CLONE_NEWUSER as u64;
    let flagged = || {
        let flag = SeccompCmpOp::MaskedEq(user);
        let asked = SeccompCondition::new(0, SeccompCmpArgLen::Qword, flag, user).unwrap();
        vec![SeccompRule::new(vec![asked]).unwrap()]
    };
    let rules = BTreeMap::from([(libc::SYS_unshare, flagged()), (libc::SYS_clone, flagged())]);
    let architecture = std::env::consts::ARCH.try_into().unwrap();
    let put_on = |rules, answer: i32| {
        let answer = SeccompAction::Errno(answer as u32);
        let filter = SeccompFilter::new(rules, SeccompAction::Allow, answer, architecture).unwrap();
        seccompiler::apply_filter(&BpfProgram::try_from(filter).unwrap()).unwrap();
    };
    put_on(rules, libc::EPERM);
    // Its flags cannot be looked at.
    put_on(BTreeMap::from([(libc::SYS_clone3, Vec::new())]), libc::ENOSYS);
}

/// Where user namespaces are off: refused with what to do, and allowed by name.
async fn refuses_or_is_allowed(place: &str, start: impl Fn(&Env<'_>) -> Result<Service, String>) {
    for bubblewrap in ["on", "off"] {
        let words = start(&[("SANDBOX_BUBBLEWRAP", bubblewrap)]).err().unwrap_or_else(|| panic!("{place}"));
        for part in [
            "the layer namespaces is missing on this machine",
            "user namespaces cannot be made",
            "user.max_user_namespaces above 0",
            "SANDBOX_ALLOW_MISSING=namespaces",
            "SANDBOX_URL",
        ] {
            assert!(words.contains(part), "{place}, bubblewrap {bubblewrap}: {words}");
        }
        let tried = bubblewrap == "on" && Path::new("/usr/bin/bwrap").exists();
        assert_eq!(words.contains("bwrap: "), tried, "{place}, bubblewrap {bubblewrap}: {words}");
        assert_eq!(words.contains("installing bubblewrap may do"), !tried, "{place}: {words}");
        // The permission for another layer is none for this one.
        let other = start(&[("SANDBOX_BUBBLEWRAP", bubblewrap), ("SANDBOX_ALLOW_MISSING", "landlock")]);
        assert!(other.is_err(), "{place}");
    }
    let allowed = start(&[("SANDBOX_BUBBLEWRAP", "on"), ("SANDBOX_ALLOW_MISSING", "namespaces")]);
    let allowed = allowed.unwrap_or_else(|words| panic!("{place}: {words}"));
    let line = allowed.line.clone();
    assert!(line.contains("no namespaces; enforced: landlock, seccomp, limits"), "{place}: {line}");
    assert!(line.contains("missing, as allowed: namespaces"), "{place}: {line}");
    let world = World::around(allowed).await;
    let lines = world.run("run echo here\nthen run cat /etc/shadow\nthen write assets/a.txt: kept").await;
    let steps = lines.ended("shell");
    assert_eq!(steps[0]["result"], "here\n", "{place}: {lines:#?}");
    assert_eq!(steps[1]["status"], "failed", "{place}: {lines:#?}");
    assert_eq!(world.told.lock().results[&lines.run][0].0, "a.txt", "{place}");
}

#[tokio::test]
async fn where_no_user_namespace_is_left_it_refuses_unless_allowed_by_name() {
    let ordinary: &[&str] = &["--map-user=1000", "--map-group=1000", "--keep-caps"];
    for called in [ordinary, &["--map-root-user"]] {
        let start = |env: &Env<'_>| Service::by(none_left(called, env));
        refuses_or_is_allowed(&format!("none left, {called:?}"), start).await;
    }
}

#[tokio::test]
async fn where_user_namespaces_are_forbidden_it_refuses_unless_allowed_by_name() {
    for user in users() {
        let start = |env: &Env<'_>| {
            std::thread::scope(|scope| {
                let starting = scope.spawn(|| {
                    forbid_namespaces();
                    Service::by(command(user, env))
                });
                starting.join().unwrap()
            })
        };
        refuses_or_is_allowed(&format!("forbidden, as {user:?}"), start).await;
    }
}
