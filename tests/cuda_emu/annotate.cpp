/* ThreadSanitizer's interface, or nothing. */
#include "tests/cuda_emu/emu.h"

#if EMU_TSAN
extern "C" {
void AnnotateIgnoreSyncBegin(const char *file, int line);
void AnnotateIgnoreSyncEnd(const char *file, int line);
void AnnotateIgnoreReadsBegin(const char *file, int line);
void AnnotateIgnoreReadsEnd(const char *file, int line);
void AnnotateIgnoreWritesBegin(const char *file, int line);
void AnnotateIgnoreWritesEnd(const char *file, int line);
void __tsan_acquire(void *);
void __tsan_release(void *);
void __tsan_read_range(void *, unsigned long);
void __tsan_write_range(void *, unsigned long);
}

emu::Unseen::Unseen()
{
    AnnotateIgnoreSyncBegin(__FILE__, __LINE__);
    AnnotateIgnoreReadsBegin(__FILE__, __LINE__);
    AnnotateIgnoreWritesBegin(__FILE__, __LINE__);
}
emu::Unseen::~Unseen()
{
    AnnotateIgnoreWritesEnd(__FILE__, __LINE__);
    AnnotateIgnoreReadsEnd(__FILE__, __LINE__);
    AnnotateIgnoreSyncEnd(__FILE__, __LINE__);
}
void emu::acquire(void *edge)
{
    __tsan_acquire(edge);
}
void emu::release(void *edge)
{
    __tsan_release(edge);
}
void emu::reads(const void *p, size_t bytes)
{
    if (bytes > 0)
        __tsan_read_range(const_cast<void *>(p), bytes);
}
void emu::writes(void *p, size_t bytes)
{
    if (bytes > 0)
        __tsan_write_range(p, bytes);
}
#else
emu::Unseen::Unseen()
{
}
emu::Unseen::~Unseen()
{
}
void emu::acquire(void *)
{
}
void emu::release(void *)
{
}
void emu::reads(const void *, size_t)
{
}
void emu::writes(void *, size_t)
{
}
#endif
