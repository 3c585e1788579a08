# Error against PipeFusion's, one bar a way; the line is PipeFusion. Columns: place, ratio, low, high, label.
width = 640; height = 24 * rows + 90
load 'study-style.gp'
unset grid
set grid xtics lc rgb '#dddddd' lw 0.6
set logscale x
set xrange [0.05:30]
set yrange [rows + 0.6:0.4]
set lmargin 30
set xlabel 'Median error of the image, in units of PipeFusion (M = 8, W = 1)'
set arrow from 1, graph 0 to 1, graph 1 nohead lc rgb PIPE lw 2
set style fill solid 0.8 noborder
set boxwidth 0.6
plot data using (sqrt($2 * 0.05)):1:(0.05):2:($1 - 0.32):($1 + 0.32):ytic(5) with boxxyerror lc rgb STALE, \
     data using 2:1:3:4 with xerrorbars lc rgb GREY pt 0
