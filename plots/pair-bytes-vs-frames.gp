# What the rank that sends most sends in a pair of blocks, per step, over the frames of a video.
set yrange [0:*]
set offsets graph 0.05, graph 0.05, 0, 0
set xlabel 'Frames'
y_title = 'Sent per rank, step and pair (MiB)'
set multiplot
do for [p=1:panels] {
    eval place
    plot for [i=panel_first[p]:panel_last[p]] data index i using 1:2 with linespoints \
        lc rgb colour(strategy[i+1]) dt dash(variant[i+1]) pt point(i+1) ps size title columnheader(1)
}
unset multiplot
set output
