# How the error of the latent grows from step to step; the median of the images.
width = 720; height = 400
load 'study-style.gp'
set logscale y
set format y '10^{%T}'
set xrange [0.5:20.5]
set xlabel 'Denoising step'
set ylabel 'Error of the latent (relative L2)'
set key outside right top Left reverse samplen 2 width -6
plot for [w=1:ways] data index w - 1 using 1:2 with linespoints lc rgb colours[w] pt 7 ps 0.4 title titles[w]
