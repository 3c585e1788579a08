# Latency against error, both logarithmic; numbers are ranks; what is exact stands below all errors. The line joins what no point beats in both.
set logscale xy
set format y '10^{%T}'
if (exact_at > 0) { set ytics add ('exact' exact_at) }
set xlabel 'Latency of an image (ms)'
set offsets graph 0.1, graph 0.1, graph 0.1, graph 0.1
y_title = 'Error of the image (relative L2)'
is_front(block) = strategy[block+1] eq 'front'
alone(x, block) = is_front(block) ? NaN : x
front(x, block) = is_front(block) ? x : NaN
# Decades alone are too few tics for a narrow range.
latency_tics = ''
do for [decade=-3:7] { do for [step in '1 2 5'] {
    latency_tics = latency_tics . sprintf("%s'%g' %g", strlen(latency_tics) ? ', ' : '', step * 10**decade, step * 10**decade)
} }
eval 'set xtics (' . latency_tics . ')'
set multiplot
do for [p=1:panels] {
    eval place
    stats data index panel_first[p]:panel_last[p] using 1 name 'latency' nooutput
    set xrange [latency_min / 1.3:latency_max * 1.3]
    plot for [i=panel_first[p]:panel_last[p]] data index i using (front($1, i)):2 with steps \
        lc rgb '#999999' dt 3 title (is_front(i) ? columnheader(1) : ''), \
        for [i=panel_first[p]:panel_last[p]] data index i using (alone($1, i)):2 with points \
        lc rgb colour(strategy[i+1]) pt point(i+1) ps size title (is_front(i) ? '' : columnheader(1)), \
        for [i=panel_first[p]:panel_last[p]] data index i using (alone($1, i)):2:7 with labels \
        offset 0.8, 0.4 font ',6' tc rgb '#555555' notitle
}
unset multiplot
set output
