/* Figures of video models: what a pair of blocks (spatial, temporal) makes a rank send, and latency, over
 * ranks and over frames. Images have no points in them. */
#ifndef BENCH_PLOT_VIDEO_H
#define BENCH_PLOT_VIDEO_H

#include "bench/plot_data.h"

/* MiB per pair and step over ranks, a panel for each number of frames. Counted are hidden states, keys,
 * values and heads, not the latent's one gather at the end. */
enum status plot_video_pair_bytes(const cJSON *record, const struct plot_context *, struct plot_data *)
    WARN_UNUSED;
enum status plot_video_mark(const cJSON *record, const struct plot_context *, struct plot_data *) WARN_UNUSED;
/* The same, and latency in ms, over frames at the largest number of ranks. */
enum status plot_video_frames_bytes(const cJSON *record, const struct plot_context *, struct plot_data *)
    WARN_UNUSED;
enum status plot_video_frames_latency(const cJSON *record, const struct plot_context *, struct plot_data *)
    WARN_UNUSED;

#endif
