/* The calls by which a process changes files below one directory, counted, and one of them met by
 * SIGKILL or by an error; and, for errors, the threads that it starts. Loaded with LD_PRELOAD; asleep until `disk_arm`, and in every program that
 * a process starts.
 *
 * Kinds of fate: BEFORE and AFTER kill around the call, HALF kills when half of the bytes of a write
 * have landed (elsewhere as BEFORE), ERROR fails the call and all later ones of its kind, ONCE only it.
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <pthread.h>
#include <signal.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/sendfile.h>
#include <sys/stat.h>
#include <sys/types.h>
#include <sys/uio.h>
#include <unistd.h>

enum { COUNT, BEFORE, AFTER, HALF, ERROR, ONCE };
enum { CHANGES = 1, OPENS = 2, READS = 4, REMOVES = 8, THREADS = 16 };

static char root[PATH_MAX];
static size_t root_length;
static atomic_long passed;
static long chosen;
static int fate = COUNT, failure, kinds, armed, journal = -1;
static unsigned char inside[4096];
static pid_t owner;

void disk_arm(const char *folder, long number, int how, int error, int which, int log)
{
    snprintf(root, sizeof root, "%s/", folder);
    root_length = strlen(root);
    chosen = number;
    fate = how;
    failure = error;
    kinds = which;
    journal = log;
    atomic_store(&passed, 0);
    owner = getpid();
    armed = 1;
}

long disk_disarm(void)
{
    armed = 0;
    return atomic_load(&passed);
}

static int is_below(int folder, const char *path)
{
    if (!armed || !path)
        return 0;
    if (path[0] == '/')
        return !strncmp(path, root, root_length);
    return folder >= 0 && folder < (int)sizeof inside && inside[folder];
}

static int is_inside(int number)
{
    return armed && number >= 0 && number < (int)sizeof inside && inside[number];
}

static void die(void) { kill(getpid(), SIGKILL); for (;;) pause(); }

static void note(const char *name, const char *path)
{
    char line[PATH_MAX + 64];
    if (journal >= 0) {
        int size = snprintf(line, sizeof line, "%s %s\n", name, path ? path : "");
        ssize_t (*real)(int, const void *, size_t) = dlsym(RTLD_NEXT, "write");
        if (real(journal, line, size) < 0)
            abort();
    }
}

/* Whether the call has to fail; does not return if it is the one before which the process dies. */
static int meets(int kind, const char *name, const char *path, int *mine)
{
    *mine = 0;
    if (!(kinds & kind))
        return 0;
    long number = atomic_fetch_add(&passed, 1) + 1;
    note(name, path);
    *mine = number == chosen;
    if (*mine && (fate == BEFORE || fate == HALF))
        die();
    if ((fate == ERROR && chosen && number >= chosen) || (fate == ONCE && *mine)) {
        errno = failure;
        return 1;
    }
    return 0;
}

#define REAL(name) \
    static __typeof__(name) *real; \
    if (!real) \
        real = (__typeof__(name) *)dlsym(RTLD_NEXT, #name)

#define CALL(test, kind, path, call) \
    do { \
        int mine = 0; \
        if ((test) && meets(kind, __func__, path, &mine)) \
            return -1; \
        __typeof__(call) result = call; \
        if (mine && fate == AFTER) \
            die(); \
        return result; \
    } while (0)

static int opened(int number, int below)
{
    if (armed && number >= 0 && number < (int)sizeof inside)
        inside[number] = below;
    return number;
}

static int kind_of(int flags)
{
    return OPENS | (flags & (O_WRONLY | O_RDWR | O_CREAT | O_TRUNC) ? CHANGES : 0);
}

#define OPEN(name, folder, ...) \
    mode_t mode = 0; \
    if (flags & (O_CREAT | O_TMPFILE)) { \
        va_list more; \
        va_start(more, flags); \
        mode = va_arg(more, mode_t); \
        va_end(more); \
    } \
    REAL(name); \
    int below = is_below(folder, path), mine = 0; \
    if (below && meets(kind_of(flags), #name, path, &mine)) \
        return -1; \
    int number = opened(real(__VA_ARGS__, flags, mode), below); \
    if (mine && fate == AFTER) \
        die(); \
    return number

int open(const char *path, int flags, ...) { OPEN(open, -1, path); }
int open64(const char *path, int flags, ...) { OPEN(open64, -1, path); }
int openat(int folder, const char *path, int flags, ...) { OPEN(openat, folder, folder, path); }
int openat64(int folder, const char *path, int flags, ...) { OPEN(openat64, folder, folder, path); }

int close(int number)
{
    REAL(close);
    /* A vfork has this memory and closes its own descriptors. */
    if (number >= 0 && number < (int)sizeof inside && getpid() == owner)
        inside[number] = 0;
    return real(number);
}

ssize_t write(int number, const void *data, size_t size)
{
    REAL(write);
    int mine = 0;
    if (is_inside(number)) {
        if (fate == HALF && chosen == atomic_load(&passed) + 1 && (kinds & CHANGES)) {
            if (real(number, data, size / 2) >= 0)
                die();
        }
        if (meets(CHANGES, "write", NULL, &mine))
            return -1;
    }
    ssize_t done = real(number, data, size);
    if (mine && fate == AFTER)
        die();
    return done;
}

ssize_t writev(int number, const struct iovec *parts, int count)
{
    REAL(writev);
    CALL(is_inside(number), CHANGES, NULL, real(number, parts, count));
}

ssize_t read(int number, void *data, size_t size)
{
    REAL(read);
    CALL(is_inside(number), READS, NULL, real(number, data, size));
}

ssize_t sendfile(int target, int source, off_t *offset, size_t size)
{
    REAL(sendfile);
    CALL(is_inside(target), CHANGES, NULL, real(target, source, offset, size));
}

ssize_t sendfile64(int target, int source, off64_t *offset, size_t size)
{
    REAL(sendfile64);
    CALL(is_inside(target), CHANGES, NULL, real(target, source, offset, size));
}

int ftruncate64(int number, off64_t size)
{
    REAL(ftruncate64);
    CALL(is_inside(number), CHANGES, NULL, real(number, size));
}

int fsync(int number) { REAL(fsync); CALL(is_inside(number), CHANGES, NULL, real(number)); }
int fdatasync(int number) { REAL(fdatasync); CALL(is_inside(number), CHANGES, NULL, real(number)); }

int rename(const char *from, const char *to)
{
    REAL(rename);
    CALL(is_below(-1, to) || is_below(-1, from), CHANGES, to, real(from, to));
}

int link(const char *from, const char *to)
{
    REAL(link);
    CALL(is_below(-1, to), CHANGES, to, real(from, to));
}

int linkat(int one, const char *from, int two, const char *to, int flags)
{
    REAL(linkat);
    CALL(is_below(two, to), CHANGES, to, real(one, from, two, to, flags));
}

int unlink(const char *path) { REAL(unlink); CALL(is_below(-1, path), REMOVES, path, real(path)); }
int rmdir(const char *path) { REAL(rmdir); CALL(is_below(-1, path), REMOVES, path, real(path)); }

int unlinkat(int folder, const char *path, int flags)
{
    REAL(unlinkat);
    CALL(is_below(folder, path), REMOVES, path, real(folder, path, flags));
}

int mkdir(const char *path, mode_t mode)
{
    REAL(mkdir);
    CALL(is_below(-1, path), CHANGES, path, real(path, mode));
}

int mkdirat(int folder, const char *path, mode_t mode)
{
    REAL(mkdirat);
    CALL(is_below(folder, path), CHANGES, path, real(folder, path, mode));
}

int chmod(const char *path, mode_t mode)
{
    REAL(chmod);
    CALL(is_below(-1, path), CHANGES, path, real(path, mode));
}

int fchmod(int number, mode_t mode)
{
    REAL(fchmod);
    CALL(is_inside(number), CHANGES, NULL, real(number, mode));
}

int pthread_create(pthread_t *thread, const pthread_attr_t *how, void *(*run)(void *), void *given)
{
    REAL(pthread_create);
    int mine = 0;
    if (armed && meets(THREADS, __func__, NULL, &mine))
        return failure;
    return real(thread, how, run, given);
}
