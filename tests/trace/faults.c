/* Make a chosen system call on the files of one folder fail, or kill the process in the middle of it.

   Loaded with LD_PRELOAD, so that SQLite and Python call through it; the tests arm it through ctypes. */

#define _GNU_SOURCE
#include <dirent.h>
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

enum { OPEN = 1, WRITE = 2, SYNC = 4, RESIZE = 8, UNLINK = 16, MKDIR = 32, MAP = 64, READ = 128 };

static char folder[PATH_MAX];
static int kinds, nth, error, forever, half, deadly, calls, fired;

/* The nth call of these kinds fails with the error (0: none does), and with forever all later ones too. With half it
   first does half of a write, as a disk that fills up does. With deadly it kills the process instead. */
void faults_arm(const char *folder_, int kinds_, int nth_, int error_, int forever_, int half_, int deadly_) {
    snprintf(folder, sizeof folder, "%s/", folder_);
    kinds = kinds_, nth = nth_, error = error_, forever = forever_, half = half_, deadly = deadly_;
    calls = fired = 0;
}

/* Let everything succeed from now on. */
void faults_disarm(void) { nth = 0; }

int faults_calls(void) { return calls; }
int faults_fired(void) { return fired; }

static int is_ours(const char *path) { return folder[0] && !strncmp(path, folder, strlen(folder)); }

static int is_ours_fd(int fd) {
    char link[32], path[PATH_MAX];
    if (!folder[0] || fd < 0) return 0;
    snprintf(link, sizeof link, "/proc/self/fd/%d", fd);
    ssize_t length = readlink(link, path, sizeof path - 1);
    if (length < 0) return 0;
    path[length] = 0;
    return is_ours(path);
}

static int strikes(int kind) {
    if (!(kinds & kind)) return 0;
    calls++;
    if (!nth || (forever ? calls < nth : calls != nth)) return 0;
    fired++;
    if (deadly && !(half && kind == WRITE)) kill(getpid(), SIGKILL);
    errno = error;
    return 1;
}

#define REAL(name) ((__typeof__(&name))dlsym(RTLD_NEXT, #name))
#define FAILS(kind, ours) ((ours) && strikes(kind))

/* Half a write says so; the call for the other half is the next to fail. */
#define WRITES(name, call)                                             \
    if (!FAILS(WRITE, is_ours_fd(fd))) return REAL(name) call;         \
    if (!half || calls > nth) return -1;                               \
    size -= size / 2;                                                  \
    ssize_t done = REAL(name) call;                                    \
    if (deadly) kill(getpid(), SIGKILL);                               \
    if (!forever) nth++, half = 0;                                            \
    return done;

ssize_t write(int fd, const void *data, size_t size) { WRITES(write, (fd, data, size)) }
ssize_t pwrite(int fd, const void *data, size_t size, off_t at) { WRITES(pwrite, (fd, data, size, at)) }
ssize_t pwrite64(int fd, const void *data, size_t size, off64_t at) { WRITES(pwrite64, (fd, data, size, at)) }
int fsync(int fd) { return FAILS(SYNC, is_ours_fd(fd)) ? -1 : REAL(fsync)(fd); }
int fdatasync(int fd) { return FAILS(SYNC, is_ours_fd(fd)) ? -1 : REAL(fdatasync)(fd); }
int ftruncate(int fd, off_t size) { return FAILS(RESIZE, is_ours_fd(fd)) ? -1 : REAL(ftruncate)(fd, size); }
int ftruncate64(int fd, off64_t size) { return FAILS(RESIZE, is_ours_fd(fd)) ? -1 : REAL(ftruncate64)(fd, size); }
int unlink(const char *path) { return FAILS(UNLINK, is_ours(path)) ? -1 : REAL(unlink)(path); }
int mkdir(const char *path, mode_t mode) { return FAILS(MKDIR, is_ours(path)) ? -1 : REAL(mkdir)(path, mode); }
ssize_t read(int fd, void *data, size_t size) { return FAILS(READ, is_ours_fd(fd)) ? -1 : REAL(read)(fd, data, size); }
ssize_t pread(int fd, void *data, size_t size, off_t at) { return FAILS(READ, is_ours_fd(fd)) ? -1 : REAL(pread)(fd, data, size, at); }
ssize_t pread64(int fd, void *data, size_t size, off64_t at) { return FAILS(READ, is_ours_fd(fd)) ? -1 : REAL(pread64)(fd, data, size, at); }

void *mmap(void *start, size_t size, int protection, int flags, int fd, off_t at) {
    return FAILS(MAP, is_ours_fd(fd)) ? MAP_FAILED : REAL(mmap)(start, size, protection, flags, fd, at);
}
void *mmap64(void *start, size_t size, int protection, int flags, int fd, off64_t at) {
    return FAILS(MAP, is_ours_fd(fd)) ? MAP_FAILED : REAL(mmap64)(start, size, protection, flags, fd, at);
}

/* A read-only disk lets files be opened to read; the lack of descriptors or rights spares nobody. */
static int open_fails(const char *path, int flags) {
    if (error == EROFS && !(flags & (O_WRONLY | O_RDWR | O_CREAT))) return 0;
    return FAILS(OPEN, is_ours(path));
}

#define OPENS(name, call)                                              \
    mode_t mode = 0;                                                   \
    if (flags & O_CREAT || (flags & O_TMPFILE) == O_TMPFILE) {                            \
        va_list rest;                                                  \
        va_start(rest, flags);                                         \
        mode = va_arg(rest, mode_t);                                   \
        va_end(rest);                                                  \
    }                                                                  \
    return open_fails(path, flags) ? -1 : REAL(name) call;

int open(const char *path, int flags, ...) { OPENS(open, (path, flags, mode)) }
int open64(const char *path, int flags, ...) { OPENS(open64, (path, flags, mode)) }
int openat(int fd, const char *path, int flags, ...) { OPENS(openat, (fd, path, flags, mode)) }
int openat64(int fd, const char *path, int flags, ...) { OPENS(openat64, (fd, path, flags, mode)) }
DIR *opendir(const char *path) { return open_fails(path, O_RDONLY) ? NULL : REAL(opendir)(path); }
