# Latency against error, both logarithmic; numbers are ranks. The line joins what no point beats in both.
set logscale xy
set format y '10^{%T}'
set xlabel 'Latency of an image (ms)'
set offsets graph 0.1, graph 0.1, graph 0.1, graph 0.1
y_title = 'Error of the image (relative L2)'
is_front(block) = strategy[block+1] eq 'front'
alone(x, block) = is_front(block) ? NaN : x
front(x, block) = is_front(block) ? x : NaN
set multiplot
do for [p=1:panels] {
    eval place
    plot for [i=panel_first[p]:panel_last[p]] data index i using (front($1, i)):2 with steps \
        lc rgb '#999999' dt 3 title (is_front(i) ? columnheader(1) : ''), \
        for [i=panel_first[p]:panel_last[p]] data index i using (alone($1, i)):2 with points \
        lc rgb colour(strategy[i+1]) pt point(i+1) ps size title (is_front(i) ? '' : columnheader(1)), \
        for [i=panel_first[p]:panel_last[p]] data index i using (alone($1, i)):2:7 with labels \
        offset 0.8, 0.4 font ',6' tc rgb '#555555' notitle
}
unset multiplot
set output
