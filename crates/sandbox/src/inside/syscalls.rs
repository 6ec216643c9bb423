//! The system calls that programs in a room may make: those of ordinary programs. Whatever is not named here answers
//! ENOSYS, as on a kernel that does not have it, so programs fall back where they can.

use std::collections::BTreeMap;

use nix::libc::{self, c_long};
use seccompiler::{
    BpfProgram, Error, SeccompAction, SeccompCmpArgLen, SeccompCmpOp, SeccompCondition, SeccompFilter,
    SeccompRule, TargetArch,
};

/// Calls of every architecture. Not among them: mounts, namespaces, modules, keys, tracing, other processes' memory,
/// io_uring, bpf, perf, userfaultfd, memory that no limit counts (memfd, SysV), handles that pass by paths.
#[rustfmt::skip]
const ALLOWED: &[c_long] = &[
    // files
    libc::SYS_read, libc::SYS_write, libc::SYS_readv, libc::SYS_writev, libc::SYS_pread64, libc::SYS_pwrite64,
    libc::SYS_preadv, libc::SYS_pwritev, libc::SYS_preadv2, libc::SYS_pwritev2, libc::SYS_openat, libc::SYS_openat2,
    libc::SYS_close, libc::SYS_close_range, libc::SYS_lseek, libc::SYS_fstat, libc::SYS_newfstatat, libc::SYS_statx,
    libc::SYS_statfs, libc::SYS_fstatfs, libc::SYS_faccessat, libc::SYS_faccessat2, libc::SYS_readlinkat,
    libc::SYS_getdents64, libc::SYS_getcwd, libc::SYS_chdir, libc::SYS_fchdir, libc::SYS_mkdirat, libc::SYS_unlinkat,
    libc::SYS_linkat, libc::SYS_symlinkat, libc::SYS_renameat2, libc::SYS_truncate, libc::SYS_ftruncate,
    libc::SYS_fallocate, libc::SYS_fadvise64, libc::SYS_fsync, libc::SYS_fdatasync, libc::SYS_sync_file_range,
    libc::SYS_sync, libc::SYS_syncfs, libc::SYS_flock, libc::SYS_fcntl, libc::SYS_dup, libc::SYS_dup3, libc::SYS_pipe2,
    libc::SYS_fchmod, libc::SYS_fchmodat, libc::SYS_fchmodat2, libc::SYS_fchown, libc::SYS_fchownat, libc::SYS_umask,
    libc::SYS_utimensat, libc::SYS_copy_file_range, libc::SYS_sendfile, libc::SYS_splice, libc::SYS_tee,
    libc::SYS_vmsplice, libc::SYS_readahead, libc::SYS_mknodat,
    libc::SYS_getxattr, libc::SYS_lgetxattr, libc::SYS_fgetxattr, libc::SYS_listxattr, libc::SYS_llistxattr,
    libc::SYS_flistxattr, libc::SYS_setxattr, libc::SYS_lsetxattr, libc::SYS_fsetxattr, libc::SYS_removexattr,
    libc::SYS_lremovexattr, libc::SYS_fremovexattr,
    libc::SYS_inotify_init1, libc::SYS_inotify_add_watch, libc::SYS_inotify_rm_watch,
    // memory
    libc::SYS_mmap, libc::SYS_munmap, libc::SYS_mremap, libc::SYS_mprotect, libc::SYS_madvise, libc::SYS_brk,
    libc::SYS_mincore, libc::SYS_msync, libc::SYS_mlock, libc::SYS_mlock2, libc::SYS_munlock, libc::SYS_munlockall,
    libc::SYS_membarrier, libc::SYS_pkey_alloc, libc::SYS_pkey_free, libc::SYS_pkey_mprotect, libc::SYS_get_mempolicy,
    // processes
    libc::SYS_execve, libc::SYS_execveat, libc::SYS_exit, libc::SYS_exit_group, libc::SYS_wait4, libc::SYS_waitid,
    libc::SYS_kill, libc::SYS_tkill, libc::SYS_tgkill, libc::SYS_getpid, libc::SYS_getppid, libc::SYS_gettid,
    libc::SYS_getpgid, libc::SYS_setpgid, libc::SYS_getsid, libc::SYS_setsid, libc::SYS_getuid, libc::SYS_geteuid,
    libc::SYS_getgid, libc::SYS_getegid, libc::SYS_getresuid, libc::SYS_getresgid, libc::SYS_getgroups,
    libc::SYS_setuid, libc::SYS_setgid, libc::SYS_setreuid, libc::SYS_setregid, libc::SYS_setresuid,
    libc::SYS_setresgid, libc::SYS_setfsuid, libc::SYS_setfsgid, libc::SYS_setgroups,
    libc::SYS_capget, libc::SYS_prctl, libc::SYS_prlimit64, libc::SYS_getrlimit, libc::SYS_setrlimit,
    libc::SYS_getrusage, libc::SYS_times, libc::SYS_getpriority, libc::SYS_setpriority, libc::SYS_sched_yield,
    libc::SYS_sched_getaffinity, libc::SYS_sched_setaffinity, libc::SYS_sched_getparam, libc::SYS_sched_getscheduler,
    libc::SYS_sched_get_priority_max, libc::SYS_sched_get_priority_min, libc::SYS_sched_getattr, libc::SYS_getcpu,
    libc::SYS_set_tid_address, libc::SYS_set_robust_list, libc::SYS_get_robust_list, libc::SYS_rseq, libc::SYS_futex,
    libc::SYS_pidfd_open, libc::SYS_pidfd_send_signal, libc::SYS_uname, libc::SYS_sysinfo, libc::SYS_getrandom,
    libc::SYS_ioprio_get,
    // signals and time
    libc::SYS_rt_sigaction, libc::SYS_rt_sigprocmask, libc::SYS_rt_sigreturn, libc::SYS_rt_sigpending,
    libc::SYS_rt_sigsuspend, libc::SYS_rt_sigtimedwait, libc::SYS_rt_sigqueueinfo, libc::SYS_sigaltstack,
    libc::SYS_signalfd4, libc::SYS_nanosleep, libc::SYS_clock_nanosleep, libc::SYS_clock_gettime,
    libc::SYS_clock_getres, libc::SYS_gettimeofday, libc::SYS_getitimer, libc::SYS_setitimer, libc::SYS_timer_create,
    libc::SYS_timer_settime, libc::SYS_timer_gettime, libc::SYS_timer_getoverrun, libc::SYS_timer_delete,
    libc::SYS_timerfd_create, libc::SYS_timerfd_settime, libc::SYS_timerfd_gettime, libc::SYS_restart_syscall,
    // waiting
    libc::SYS_ppoll, libc::SYS_pselect6, libc::SYS_epoll_create1, libc::SYS_epoll_ctl, libc::SYS_epoll_pwait,
    libc::SYS_epoll_pwait2, libc::SYS_eventfd2,
    // sockets that are there; which may be made is below
    libc::SYS_socketpair, libc::SYS_bind, libc::SYS_connect, libc::SYS_listen, libc::SYS_accept, libc::SYS_accept4,
    libc::SYS_getsockname, libc::SYS_getpeername, libc::SYS_getsockopt, libc::SYS_setsockopt, libc::SYS_shutdown,
    libc::SYS_sendto, libc::SYS_recvfrom, libc::SYS_sendmsg, libc::SYS_recvmsg, libc::SYS_sendmmsg,
    libc::SYS_recvmmsg,
];

/// The older calls that newer architectures never had.
#[cfg(target_arch = "x86_64")]
#[rustfmt::skip]
const OLDER: &[c_long] = &[
    libc::SYS_open, libc::SYS_creat, libc::SYS_stat, libc::SYS_lstat, libc::SYS_access, libc::SYS_readlink,
    libc::SYS_mkdir, libc::SYS_rmdir, libc::SYS_unlink, libc::SYS_link, libc::SYS_symlink, libc::SYS_rename,
    libc::SYS_renameat, libc::SYS_chmod, libc::SYS_chown, libc::SYS_lchown, libc::SYS_utime, libc::SYS_utimes,
    libc::SYS_futimesat, libc::SYS_getdents, libc::SYS_mknod, libc::SYS_dup2, libc::SYS_pipe, libc::SYS_poll,
    libc::SYS_select, libc::SYS_epoll_create, libc::SYS_epoll_wait, libc::SYS_eventfd, libc::SYS_signalfd,
    libc::SYS_inotify_init, libc::SYS_fork, libc::SYS_vfork, libc::SYS_getpgrp, libc::SYS_alarm, libc::SYS_pause,
    libc::SYS_time, libc::SYS_arch_prctl,
];
#[cfg(not(target_arch = "x86_64"))]
const OLDER: &[c_long] = &[libc::SYS_renameat];

const NAMESPACES: u64 = (libc::CLONE_NEWNS
    | libc::CLONE_NEWUTS
    | libc::CLONE_NEWIPC
    | libc::CLONE_NEWUSER
    | libc::CLONE_NEWPID
    | libc::CLONE_NEWNET
    | libc::CLONE_NEWCGROUP) as u32 as u64;

/// Puts the filter on. `bare`: there is no network namespace, so no socket reaches beyond this machine's own.
pub fn filter(bare: bool) -> Result<(), Error> {
    let program: BpfProgram = SeccompFilter::new(
        rules(bare)?,
        SeccompAction::Errno(libc::ENOSYS as u32),
        SeccompAction::Allow,
        architecture()?,
    )?
    .try_into()?;
    seccompiler::apply_filter(&program)
}

fn architecture() -> Result<TargetArch, Error> {
    Ok(std::env::consts::ARCH.try_into()?)
}

fn rules(bare: bool) -> Result<BTreeMap<i64, Vec<SeccompRule>>, Error> {
    let mut rules: BTreeMap<i64, Vec<SeccompRule>> =
        ALLOWED.iter().chain(OLDER).map(|call| (*call, Vec::new())).collect();
    let is = |at: u8, value: u64| -> Result<SeccompRule, Error> {
        let equal = SeccompCondition::new(at, SeccompCmpArgLen::Dword, SeccompCmpOp::Eq, value)?;
        Ok(SeccompRule::new(vec![equal])?)
    };
    // New processes and threads, no new namespaces. clone3 hides its flags, so it does not exist here.
    let plain = SeccompCondition::new(0, SeccompCmpArgLen::Qword, SeccompCmpOp::MaskedEq(NAMESPACES), 0)?;
    rules.insert(libc::SYS_clone, vec![SeccompRule::new(vec![plain])?]);
    let unix = libc::AF_UNIX as u64;
    let families = if bare { vec![unix] } else { vec![unix, libc::AF_INET as u64, libc::AF_INET6 as u64] };
    let sockets = families.into_iter().map(|family| is(0, family)).collect::<Result<_, _>>()?;
    rules.insert(libc::SYS_socket, sockets);
    rules.insert(libc::SYS_personality, vec![is(0, 0)?, is(0, 0xffff_ffff)?]);
    // Everything but putting words into a terminal.
    let not = |value: u64| SeccompCondition::new(1, SeccompCmpArgLen::Dword, SeccompCmpOp::Ne, value);
    let terminal = vec![not(libc::TIOCSTI)?, not(libc::TIOCLINUX)?];
    rules.insert(libc::SYS_ioctl, vec![SeccompRule::new(terminal)?]);
    Ok(rules)
}
