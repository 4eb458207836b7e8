/* The k-th call of a function on a file below a folder fails, in this process and in all that it starts.
   The state is a shared file: see `Faults` in test_fault_injection.py. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

struct state { long calls, at, error, lasting, hits; char name[16]; char folder[512]; };
static struct state *S;

__attribute__((constructor)) static void begin(void) {
    const char *path = getenv("FAULT_STATE");
    int fd = path ? syscall(SYS_openat, AT_FDCWD, path, O_RDWR) : -1;
    if (fd < 0) return;
    void *p = (void *)syscall(SYS_mmap, 0, sizeof *S, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    syscall(SYS_close, fd);
    if (p != MAP_FAILED) S = p;
}

static int fails(const char *name, const char *path) {
    if (!S || !S->at || strcmp(S->name, name) || !path || strncmp(path, S->folder, strlen(S->folder))) return 0;
    long n = __sync_add_and_fetch(&S->calls, 1);
    if (n != S->at && !(S->lasting && n > S->at)) return 0;
    __sync_add_and_fetch(&S->hits, 1);
    errno = S->error;
    return 1;
}

static int fails_at(const char *name, int fd) {
    char link[64], path[4096];
    if (!S || !S->at || fd < 0 || strcmp(S->name, name)) return 0;
    snprintf(link, sizeof link, "/proc/self/fd/%d", fd);
    long n = syscall(SYS_readlinkat, AT_FDCWD, link, path, sizeof path - 1);
    if (n <= 0) return 0;
    path[n] = 0;
    return fails(name, path);
}

#define REAL(type, name) static type (*real)(); if (!real) real = (type (*)())dlsym(RTLD_NEXT, name)
#define OPEN(symbol) int symbol(const char *path, int flags, ...) { \
    va_list v; va_start(v, flags); int mode = va_arg(v, int); va_end(v); \
    REAL(int, #symbol); return fails("open", path) ? -1 : real(path, flags, mode); }
#define OPENAT(symbol) int symbol(int at, const char *path, int flags, ...) { \
    va_list v; va_start(v, flags); int mode = va_arg(v, int); va_end(v); \
    REAL(int, #symbol); return fails("open", path) ? -1 : real(at, path, flags, mode); }
OPEN(open) OPEN(open64) OPENAT(openat) OPENAT(openat64)
ssize_t read(int fd, void *b, size_t n) { REAL(ssize_t, "read"); return fails_at("read", fd) ? -1 : real(fd, b, n); }
ssize_t pread(int fd, void *b, size_t n, off_t o) { REAL(ssize_t, "pread"); return fails_at("read", fd) ? -1 : real(fd, b, n, o); }
ssize_t pread64(int fd, void *b, size_t n, off64_t o) { REAL(ssize_t, "pread64"); return fails_at("read", fd) ? -1 : real(fd, b, n, o); }
ssize_t write(int fd, const void *b, size_t n) { REAL(ssize_t, "write"); return fails_at("write", fd) ? -1 : real(fd, b, n); }
ssize_t pwrite(int fd, const void *b, size_t n, off_t o) { REAL(ssize_t, "pwrite"); return fails_at("write", fd) ? -1 : real(fd, b, n, o); }
ssize_t pwrite64(int fd, const void *b, size_t n, off64_t o) { REAL(ssize_t, "pwrite64"); return fails_at("write", fd) ? -1 : real(fd, b, n, o); }
int fdatasync(int fd) { REAL(int, "fdatasync"); return fails_at("fsync", fd) ? -1 : real(fd); }
int ftruncate(int fd, off_t n) { REAL(int, "ftruncate"); return fails_at("write", fd) ? -1 : real(fd, n); }
int ftruncate64(int fd, off64_t n) { REAL(int, "ftruncate64"); return fails_at("write", fd) ? -1 : real(fd, n); }
int fsync(int fd) { REAL(int, "fsync"); return fails_at("fsync", fd) ? -1 : real(fd); }
int fstat(int fd, struct stat *s) { REAL(int, "fstat"); return fails_at("fstat", fd) ? -1 : real(fd, s); }
int fstat64(int fd, struct stat64 *s) { REAL(int, "fstat64"); return fails_at("fstat", fd) ? -1 : real(fd, s); }
int lstat(const char *p, struct stat *s) { REAL(int, "lstat"); return fails("stat", p) ? -1 : real(p, s); }
int lstat64(const char *p, struct stat64 *s) { REAL(int, "lstat64"); return fails("stat", p) ? -1 : real(p, s); }
int stat(const char *p, struct stat *s) { REAL(int, "stat"); return fails("stat", p) ? -1 : real(p, s); }
int stat64(const char *p, struct stat64 *s) { REAL(int, "stat64"); return fails("stat", p) ? -1 : real(p, s); }
int rename(const char *a, const char *b) { REAL(int, "rename"); return fails("rename", a) ? -1 : real(a, b); }
int link(const char *a, const char *b) { REAL(int, "link"); return fails("rename", b) ? -1 : real(a, b); }
int linkat(int f, const char *a, int g, const char *b, int h) { REAL(int, "linkat"); return fails("rename", b) ? -1 : real(f, a, g, b, h); }
int mkdir(const char *a, mode_t m) { REAL(int, "mkdir"); return fails("mkdir", a) ? -1 : real(a, m); }
int unlink(const char *a) { REAL(int, "unlink"); return fails("unlink", a) ? -1 : real(a); }
int fchmod(int fd, mode_t m) { REAL(int, "fchmod"); return fails_at("fchmod", fd) ? -1 : real(fd, m); }
void *mmap(void *a, size_t n, int p, int f, int fd, off_t o) {
    REAL(void *, "mmap"); return fails_at("mmap", fd) ? MAP_FAILED : real(a, n, p, f, fd, o); }
void *mmap64(void *a, size_t n, int p, int f, int fd, off64_t o) {
    REAL(void *, "mmap64"); return fails_at("mmap", fd) ? MAP_FAILED : real(a, n, p, f, fd, o); }
int close(int fd) { REAL(int, "close"); int bad = fails_at("close", fd), error = errno; int r = real(fd); if (bad) { errno = error; return -1; } return r; }
