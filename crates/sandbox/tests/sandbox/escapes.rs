//! Attempts to get out of a room, as root and as an ordinary user, through every way of making one. Each prints
//! ESCAPED where it succeeds.

use std::os::linux::net::SocketAddrExt as _;
use std::os::unix::fs::PermissionsExt as _;

use crate::world::{World, users};

/// What a program in the room has for raw calls: `call(number, …)` tells whether the kernel did it.
const PRELUDE: &str = "import ctypes, os, socket, struct, sys
libc = ctypes.CDLL(None, use_errno=True)
def call(*args):
    done = libc.syscall(*[a if isinstance(a, bytes) else ctypes.c_long(a) for a in args])
    if done >= 0: print('ESCAPED', args)
    else: print('refused', ctypes.get_errno())
def connect(family, kind, address):
    s = socket.socket(family, kind); s.settimeout(2)
    try:
        s.connect(address); s.send(b'x'); s.recv(1); print('ESCAPED', address)
    except Exception as e: print('refused', e)
";

/// Raw calls by their numbers on x86-64, which no program in a room needs.
#[cfg(target_arch = "x86_64")]
const CALLS: &[(&str, &str)] = &[
    ("ptrace the first process", "101, 16, 1, 0, 0"),
    ("ptrace me", "101, 0, 0, 0, 0"),
    ("seize the first process", "101, 0x4206, 1, 0, 0"),
    ("unshare a user namespace", "272, 0x10000000"),
    ("unshare mounts", "272, 0x20000"),
    ("clone into a user namespace", "56, 0x10000011, 0, 0, 0, 0"),
    ("clone into a network namespace", "56, 0x40000011, 0, 0, 0, 0"),
    ("clone3, which hides its flags", "435, 0, 88"),
    ("mount", "165, b'x', b'/tmp', b'tmpfs', 0, 0"),
    ("open a file system", "430, b'tmpfs', 0"),
    ("open a tree", "428, -100, b'/', 1"),
    ("move a mount", "429, 0, b'', 0, b'', 0"),
    ("change a mount", "442, -100, b'/', 0, 0, 0"),
    ("unmount", "166, b'/proc', 2"),
    ("pivot_root", "155, b'.', b'.'"),
    ("chroot", "161, b'/tmp'"),
    ("read another's memory", "310, 1, 0, 0, 0, 0, 0"),
    ("write another's memory", "311, 1, 0, 0, 0, 0, 0"),
    ("take another's descriptor", "438, 3, 0, 0"),
    ("keys", "250, 0, -3, 1"),
    ("add a key", "248, b'user', b'k', b'v', 1, -3"),
    ("bpf", "321, 0, 0, 0"),
    ("perf events", "298, 0, 0, -1, -1, 0"),
    ("io_uring", "425, 8, 0"),
    ("userfaultfd", "323, 1"),
    ("load a module", "313, 0, b'', 0"),
    ("kexec", "246, 0, 0, 0, 0"),
    ("reboot", "169, 0xfee1dead, 672274793, 0, 0"),
    ("swap", "167, b'/tmp/x', 0"),
    ("set the time", "164, 0, 0"),
    ("set the clock", "227, 0, 0"),
    ("set the host name", "170, b'mine', 4"),
    ("the kernel's log", "103, 3, 0, 0"),
    ("open by handle", "304, 3, 0, 0"),
    ("memory that no limit counts", "319, b'x', 0"),
    ("shared memory that no limit counts", "29, 0, 1048576, 0o1666"),
    ("acct", "163, b'/tmp/x'"),
    ("ioports", "172, 0, 3, 1"),
    ("quotas", "179, 0, 0, 0, 0"),
    ("name to handle", "303, -100, b'/', 0, 0, 0"),
    ("fanotify", "300, 0, 0"),
    ("the x32 way around", "0x40000000 + 101, 16, 1, 0, 0"),
    ("personality", "135, 0x0400000"),
    ("raise a limit", "302, 0, 6, struct.pack('QQ', 1 << 40, 1 << 40), 0"),
    ("set the user", "105, 12345"),
    ("a vsock", "41, 40, 1, 0"),
    ("a packet socket", "41, 17, 3, 0"),
    ("a netlink socket", "41, 16, 3, 0"),
    ("a raw socket", "41, 2, 3, 1"),
    ("a block device", "133, b'/root/workspace/disk', 0o60666, 0xfe00"),
    ("a character device", "133, b'/root/workspace/mem', 0o20666, 0x101"),
];

fn shell_probes(secret: &str, port: u16, pid: u32) -> Vec<String> {
    let escaped = |test: &str| format!("if {test}; then echo ESCAPED; else echo refused; fi 2>&1");
    let python = |code: &str| format!("python3 -c 'from p import *; {code}' 2>&1");
    vec![
        escaped(&format!("cat {secret}")),
        escaped(&format!("cat /proc/1/root{secret}")),
        escaped(&format!("cat /proc/self/root/../..{secret}")),
        escaped(&format!("ln -s {secret} out && cat out")),
        escaped(&format!("ln {secret} out2 && cat out2")),
        escaped("cat /etc/shadow"),
        escaped("cat /etc/hostname || cat /etc/machine-id"),
        escaped("ls -A /home /mnt /srv /var/lib /opt | grep ."),
        escaped("ls -A /root | grep -v -e workspace -e '^.tmp$'"),
        escaped("cat /proc/1/environ"),
        escaped("grep -la CANARY /proc/*/environ"),
        escaped("env | grep -e CANARY -e TOKEN -e KEY"),
        escaped("ls -l /proc/1/fd/ | grep pipe"),
        escaped("ls -l /proc/1/exe /proc/1/cwd | grep -- '->'"),
        escaped("echo x > /proc/1/mem"),
        escaped("echo x > /proc/1/oom_score_adj"),
        escaped("nsenter -t 1 -a true"),
        escaped("unshare -Ur true"),
        escaped("unshare -n true"),
        escaped("mount -t tmpfs x /tmp"),
        escaped("mount --bind / /tmp"),
        escaped("mount -o remount,rw /usr"),
        escaped("umount -l /proc"),
        escaped("touch /usr/x"),
        escaped("touch /x"),
        escaped("touch /etc/x || echo x >> /etc/passwd"),
        escaped("echo x > /bin/sh"),
        escaped("ls /sys/fs/cgroup"),
        escaped("cat /dev/mem /dev/kmsg /dev/vda /dev/sda /dev/port"),
        escaped("mknod disk b 254 0"),
        escaped("echo x > /proc/sys/kernel/hostname"),
        escaped("echo x > /proc/sys/kernel/core_pattern"),
        escaped("echo 1 > /proc/sys/net/ipv4/ip_forward"),
        escaped("echo b > /proc/sysrq-trigger"),
        escaped("head -c 1 /proc/kcore | grep ."),
        escaped(&format!("kill -0 {pid}")),
        escaped("kill -STOP 1 && kill -KILL 1 && ! kill -0 1"),
        escaped("test $(ls -d /proc/[0-9]* | wc -l) -gt 12"),
        escaped("grep -E 'Cap(Prm|Eff|Amb|Inh):.*[1-9a-f]' /proc/self/status"),
        escaped("grep -E 'NoNewPrivs:.*0|Seccomp:.*0' /proc/self/status"),
        escaped("su -c true nobody || sudo -n true || passwd -d root"),
        escaped("ulimit -u 100000 || ulimit -d unlimited || ulimit -n 1000000"),
        escaped("ls -l /proc/self/fd | grep -v -e 'null$' -e pipe -e /proc -e total | grep ."),
        escaped(
            "find / -xdev -writable -not -path '/root*' -not -path '/tmp*' -not -path '/proc*' -not -path '/dev/*' \
                 -not -type l 2>/dev/null | grep .",
        ),
        escaped("find / -name '*.db' -path '*threadkeep*' 2>/dev/null | grep ."),
        python(&format!("connect(socket.AF_INET, socket.SOCK_STREAM, (\"127.0.0.1\", {port}))")),
        python(&format!("connect(socket.AF_INET, socket.SOCK_DGRAM, (\"127.0.0.1\", {port}))")),
        python("connect(socket.AF_INET, socket.SOCK_STREAM, (\"169.254.169.254\", 80))"),
        python("connect(socket.AF_INET, socket.SOCK_STREAM, (\"1.1.1.1\", 443))"),
        python("connect(socket.AF_INET6, socket.SOCK_STREAM, (\"2606:4700:4700::1111\", 443))"),
        python("connect(socket.AF_UNIX, socket.SOCK_STREAM, \"\\0threadkeep-probe\")"),
        python("connect(socket.AF_UNIX, socket.SOCK_STREAM, \"/run/docker.sock\")"),
    ]
}

/// Runs every probe in one room after the other; what each printed.
async fn probe(world: &World, commands: &[String]) -> Vec<(String, String)> {
    let mut outputs = Vec::new();
    for some in commands.chunks(30) {
        let orders: Vec<String> = some.iter().map(|command| format!("run {command}")).collect();
        let prelude = format!("write p.py: {PRELUDE}");
        let lines = world.run(&format!("{prelude}\nthen {}", orders.join("\nthen "))).await;
        let ended = lines.ended("shell");
        assert_eq!(ended.len(), some.len(), "every probe ends: {:#?}", lines.last());
        for (command, step) in some.iter().zip(ended) {
            outputs.push((command.clone(), step["result"].as_str().unwrap_or_default().to_owned()));
        }
        assert_eq!(lines.last()["type"], "result", "the room lives on after every probe");
    }
    outputs
}

async fn nothing_escapes(user: Option<u32>, env: &[(&str, &str)]) {
    let folder = tempfile::Builder::new().prefix("tk-probe-").tempdir().unwrap();
    std::fs::set_permissions(folder.path(), std::fs::Permissions::from_mode(0o777)).unwrap();
    let secret = folder.path().join("secret");
    std::fs::write(&secret, "the host's secret").unwrap();
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let port = listener.local_addr().unwrap().port();
    let answering = listener.try_clone().unwrap();
    std::thread::spawn(move || {
        for mut one in answering.incoming().flatten() {
            let _ = std::io::Write::write_all(&mut one, b"y");
        }
    });
    let name = std::os::unix::net::SocketAddr::from_abstract_name("threadkeep-probe").unwrap();
    let abstract_socket = std::os::unix::net::UnixListener::bind_addr(&name);
    if let Ok(listener) = abstract_socket {
        std::thread::spawn(move || {
            for mut one in listener.incoming().flatten() {
                let _ = std::io::Write::write_all(&mut one, b"y");
            }
        });
    }
    let env: Vec<_> =
        env.iter().copied().chain([("OPENAI_API_KEY", "CANARY"), ("SANDBOX_CANARY", "CANARY")]).collect();
    let world = World::with(user, &env).await;
    assert_eq!(world.shell("python3 -c 'print(6*7)'").await, "42\n", "the probes need Python");
    let mut commands = shell_probes(secret.to_str().unwrap(), port, std::process::id());
    #[cfg(target_arch = "x86_64")]
    commands
        .extend(CALLS.iter().map(|(_, call)| format!("python3 -c \"from p import *; call({call})\" 2>&1")));
    assert!(commands.len() >= 40);
    let outputs = probe(&world, &commands).await;
    let escaped: Vec<_> = outputs.iter().filter(|(_, output)| output.contains("ESCAPED")).collect();
    assert!(escaped.is_empty(), "as {user:?} with {}: {escaped:#?}", world.sandbox.line);
    let silent: Vec<_> = outputs.iter().filter(|(_, output)| !output.contains("refused")).collect();
    // Limits on what cannot be refused: such a probe would show nothing.
    assert!(silent.is_empty(), "these did not run: {silent:#?}");
    assert_eq!(std::fs::read_to_string(&secret).unwrap(), "the host's secret");
}

#[tokio::test]
async fn nothing_escapes_from_own_namespaces() {
    for user in users() {
        nothing_escapes(user, &[]).await;
    }
}

#[tokio::test]
async fn nothing_escapes_from_bubblewrap() {
    if !std::path::Path::new("/usr/bin/bwrap").exists() {
        return;
    }
    for user in users() {
        nothing_escapes(user, &[("SANDBOX_BUBBLEWRAP", "on")]).await;
    }
}

/// Each wall holds where another is missing.
#[tokio::test]
async fn nothing_escapes_without_landlock() {
    let env = [("SANDBOX_WITHOUT", "landlock"), ("SANDBOX_ALLOW_MISSING", "landlock")];
    for user in users() {
        nothing_escapes(user, &env).await;
    }
}

/// Without namespaces the machine is seen, but its files, its network and its processes stay out of reach.
#[tokio::test]
async fn landlock_and_seccomp_alone_keep_files_and_network_out_of_reach() {
    let folder = tempfile::Builder::new().prefix("tk-probe-").tempdir().unwrap();
    std::fs::set_permissions(folder.path(), std::fs::Permissions::from_mode(0o777)).unwrap();
    let secret = folder.path().join("secret");
    std::fs::write(&secret, "the host's secret").unwrap();
    let env = [("SANDBOX_WITHOUT", "namespaces"), ("SANDBOX_ALLOW_MISSING", "namespaces"), ("KEY", "CANARY")];
    for user in users() {
        let world = World::with(user, &env).await;
        let escaped = |test: &str| format!("if {test}; then echo ESCAPED; else echo refused; fi 2>&1");
        let secret = secret.display();
        let commands = [
            escaped(&format!("cat {secret}")),
            escaped(&format!("echo x > {secret}")),
            escaped(&format!("touch {secret}2")),
            escaped("cat /etc/passwd /etc/shadow"),
            escaped("grep -la CANARY /proc/*/environ 2>/dev/null"),
            escaped(&format!("cat /proc/{}/maps || ls /proc/{}/cwd/", world.sandbox.pid(), world.sandbox.pid())),
            escaped("ls / /root /home"),
            escaped("touch /tmp/x"),
            escaped(&format!("kill -0 {}", std::process::id())),
            "python3 -c 'from p import *; connect(socket.AF_INET, socket.SOCK_STREAM, (\"127.0.0.1\", 80))' 2>&1 \
             | grep -q 'Errno 38' && echo refused || echo ESCAPED"
                .to_owned(),
        ];
        let outputs = probe(&world, &commands).await;
        let escaped: Vec<_> = outputs.iter().filter(|(_, output)| !output.contains("refused")).collect();
        assert!(escaped.is_empty(), "as {user:?}: {escaped:#?}");
    }
}

/// Two runs at once do not see each other.
#[tokio::test]
async fn runs_do_not_see_each_other() {
    let world = World::new().await;
    let (first, second) = tokio::join!(
        world.run("run echo mine > /tmp/shared; echo mine > /dev/shm/shared; echo mine > file; sleep 1; ls /tmp /dev/shm /root/workspace"),
        world.run("run sleep 0.5; cat /tmp/shared /dev/shm/shared file; ls -d /proc/[0-9]* | wc -l; ps aux | grep -c 'sleep 1'"),
    );
    assert!(first.output().contains("shared"));
    assert!(!second.output().contains("mine"), "{}", second.output());
}

/// What the service itself knows cannot be found in the room: its environment, its token, the run's tokens.
#[tokio::test]
async fn no_secret_is_in_the_room() {
    let world = World::with(None, &[("OPENAI_API_KEY", "sk-CANARY-1"), ("SANDBOX_TOKEN", "")]).await;
    let (run, envelope) = world.envelope(
        "run grep -raFs -e sk-CANARY -e otp-000 -e config-000 / --exclude-dir=sys --exclude-dir=usr \
         --exclude-dir=lib --exclude-dir=task; cat /proc/*/cmdline | tr '\\0' ' '; env",
    );
    let client = reqwest::Client::new();
    let response =
        client.post(format!("{}/stream", world.sandbox.url)).bearer_auth("").json(&envelope).send();
    let body = response.await.unwrap().text().await.unwrap();
    let output = crate::world::Lines::read(run, &body).output();
    // The probe's own command line holds its words.
    let found: Vec<_> =
        output.lines().filter(|line| line.contains("CANARY") && !line.contains("grep")).collect();
    assert!(found.is_empty(), "{output}");
    assert!(output.contains("WORKSPACE=/root/workspace"), "{output}");
}
