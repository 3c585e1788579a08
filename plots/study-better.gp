# What is off the critical path against the error; the shaded corners are the two aims of the study. Columns:
# share, ratio, colour, label, place of the label.
width = 760; height = 480
load 'study-style.gp'
set logscale y
set xrange [0.2:1.25]
set xtics 0.2, 0.1, 1.0
set yrange [0.003:12]
set xlabel 'Share of the all-reduce bytes off the critical path (started early, or not sent)'
set ylabel 'Median error in units of PipeFusion'
set object 1 rect from 0.5, graph 0 to graph 1, first 0.5 fc rgb '#e8f3ec' fs solid noborder behind
set object 2 rect from 0.75, first 0.5 to graph 1, first 1 fc rgb '#f3f3de' fs solid noborder behind
set arrow from graph 0, first 1 to graph 1, first 1 nohead lc rgb PIPE lw 2
plot data using 1:2:3 with points lc rgb variable pt 7 ps 0.8, \
     data using ($5 > 0 ? $1 : NaN):2:4 with labels left offset 0.8, 0 font ',9', \
     data using ($5 < 0 ? $1 : NaN):2:4 with labels right offset -0.8, 0 font ',9'
