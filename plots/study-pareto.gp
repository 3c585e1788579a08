# Measured error (small trained model) against predicted latency (DiT-XL/2, 8 GPUs); exact ways stand on the
# axis. Columns: latency, error, colour, label, place of the label; one block a platform.
width = 900; height = 460
load 'study-style.gp'
set logscale y
set yrange [0.0012:0.3]
set multiplot layout 1, 2
set ylabel 'MEASURED error on dit-fashion, 16 px (relative L2)'
do for [p=1:2] {
    set title titles[p] font ',11'
    set xrange [0:limits[p]]
    set xlabel 'PREDICTED latency of DiT-XL/2, 1024 px, 8 GPUs (ms)'
    plot data index p - 1 using 1:2:3 with points lc rgb variable pt 7 ps 0.8, \
         data index p - 1 using ($5 > 0 ? $1 : NaN):2:4 with labels left offset 0.7, 0 font ',8', \
         data index p - 1 using ($5 < 0 ? $1 : NaN):2:4 with labels right offset -0.7, 0 font ',8'
    set ylabel ''
}
unset multiplot
