# One image, sampled in several ways. data: a matrix of rows of pixels per way; ways, titles and the size come
# from NAME.vars.
width = 150 * ways; height = 190
load 'study-style.gp'
unset border; unset tics; unset grid; unset colorbox
set palette gray
set cbrange [-1:1]
set size ratio -1
set lmargin 0.5; set rmargin 0.5; set bmargin 0.5; set tmargin 3
set multiplot layout 1, ways
do for [w=1:ways] {
    set title titles[w] font ',10'
    set xrange [-0.5:pixels - 0.5]; set yrange [pixels - 0.5:-0.5]
    plot data index w - 1 matrix using 1:2:3 with image
}
unset multiplot
