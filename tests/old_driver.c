/* A libcuda.so.1 that serves CUDA 12.2 only: what a machine with a driver from before the toolkit has. */
int cuDriverGetVersion(int *version);
int cuInit(unsigned flags);

int cuDriverGetVersion(int *version)
{
    *version = 12020;
    return 0;
}

int cuInit(unsigned flags)
{
    (void)flags;
    return 0;
}
